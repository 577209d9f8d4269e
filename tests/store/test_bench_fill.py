"""The rows that the benchmarks write in bulk are those that the product would have written."""

from __future__ import annotations

from bench.fill import check


def test_the_product_writes_the_same_rows(tmp_path):
    check(str(tmp_path))
