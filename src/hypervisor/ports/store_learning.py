"""What the learner needs of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hypervisor.queue.history import EndedAttempt


class LearningStore(Protocol):
    def ended_attempts(self, which: Sequence[tuple[str, int]]) -> list[EndedAttempt]: ...
    def settings_like(self, prefix: str) -> dict[str, str]: ...
    def keep_settings(self, values: Mapping[str, str]) -> None: ...
