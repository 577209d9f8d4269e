"""Steps of the state machine that merge what was completed, send it back or ask a person."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from hypervisor.core.errors import WrongState
from hypervisor.queue.sql import merging
from tests.queue.machine import QueueMachine, action
from tests.queue.machine_draws import INDEX

MERGERS = {"merge": merging.merged, "rework": merging.rework, "ask": merging.to_review}
LANDED = {"commit": "c", "target": "hv/b", "verified": True}
PEOPLE = {"approve": merging.approve, "reject": merging.reject}


class MergingSteps(QueueMachine):
    @action(
        6,
        when="merging",
        pick=INDEX,
        event=st.sampled_from(["merge", "merge", "rework", "ask", "ask"]),
        late=st.sampled_from([0, 0, 0, 0, 1]),
    )
    def merge_step(self, pick, event, late):
        """Aimed at a task that is merging; a late merger names an earlier attempt."""
        task = self._of_state("merging", pick)
        attempt = len(self.model.tasks[task].attempts) - late
        reason = None if event == "merge" else "conflict"
        moved = self.model.of_merger(task, attempt, event, reason)
        given = LANDED if event == "merge" else reason
        state = self.ledger.write(MERGERS[event], task, attempt, given, "merger", now=self.now)
        self.met["merger is late"] += not moved
        if moved:
            self._check_state(task, state)
        else:
            assert state is None

    @action(8, when="review", pick=INDEX, event=st.sampled_from(["approve", "reject"]))
    def review_step(self, pick, event):
        self.decide_review(self._of_state("review", pick), event)

    @action(1, when="merging", pick=INDEX, event=st.sampled_from(["approve", "reject"]))
    def decide_any(self, pick, event):
        self.decide_review(self._pick(pick), event)

    def decide_review(self, task, event):
        try:
            self.model.decide_review(task, event, "so")
        except WrongState:
            self.met["not in review"] += 1
            with pytest.raises(WrongState):
                self.ledger.write(PEOPLE[event], task, "so", "me", now=self.now)
            return
        self._check_state(task, self.ledger.write(PEOPLE[event], task, "so", "me", now=self.now))

    def _of_state(self, state: str, pick: int) -> str:
        fit = [task.id for task in self.model.tasks.values() if task.state == state]
        return fit[pick % len(fit)] if fit else self._pick(pick)
