"""The quota brake: after one recognised limit, nobody asks that account again for a while."""

from __future__ import annotations

from typing import NamedTuple


class Brake(NamedTuple):
    """`account` rests until `until`. `level` counts limits met in a row without a word of when
    it is over: the more, the longer the pause."""

    account: str
    until: int
    level: int
    reason: str
    since: int
