"""Brakes: after a recognised limit or outage, nobody asks that account again for a while."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.agents import stream_state as kinds
from hypervisor.resources.limits import span_text

WORDS = {
    kinds.NETWORK: "provider unreachable",
    kinds.STREAM: "provider breaks off its answers",
    kinds.SERVER: "provider fails",
    kinds.OVERLOAD: "provider overloaded",
}


class Cooldown(NamedTuple):
    """`account` rests until `until`. `level` counts limits or outages met in a row without a word
    of when it is over: the more, the longer the pause. `kind` is that of the trouble."""

    account: str
    until: int
    level: int
    reason: str
    since: int
    kind: str = kinds.QUOTA

    @property
    def provider(self) -> str:
        return self.account.partition(":")[0]

    @property
    def is_outage(self) -> bool:
        return self.kind in kinds.OUTAGES


def outage_text(brake: Cooldown, now: int) -> str:
    """One line: who cannot be asked, and when that is tried again."""
    left = span_text(max(brake.until - now + 999, 1000) // 1000 * 1000)
    text = f"{brake.provider}: {WORDS[brake.kind]}; trying again in {left}"
    return f"{text} ({brake.reason})" if brake.reason else text
