"""Intercept the calls of an operation to the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

WAYS = ("read", "write", "write_unsynced")


def intercept(
    monkeypatch: pytest.MonkeyPatch,
    store: Any,
    function: Callable[..., Any],
    instead: Callable[..., Any],
) -> None:
    """Whenever the store is to run `function`, call `instead(really, *args)`, outside of any
    transaction. `really(*args)` runs it after all."""

    def calling(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(wanted: Callable[..., Any], *args: Any, **options: Any) -> Any:
            if wanted is function:
                return instead(partial(real, wanted), *args, **options)
            return real(wanted, *args, **options)

        return call

    for way in WAYS:
        monkeypatch.setattr(store, way, calling(getattr(store, way)))
