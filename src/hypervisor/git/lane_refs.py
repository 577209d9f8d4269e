"""The refs of a merge lane in the hub: what landed last, and what is about to land.

What is about to land is recorded first, atomically: after a kill it shows which entries have
landed, and as which commits, if the target has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.git.command import Git
from hypervisor.git.hub import Hub
from hypervisor.git.stack import DURABLE, tree_of


class Intent(NamedTuple):
    """`entries`: the id of each, with its commit and whether it was verified. The last commit is
    the one to land."""

    entries: tuple[tuple[str, str, bool], ...]

    @property
    def commit(self) -> str:
        return self.entries[-1][1]

    def landed_in(self, hub: Git, tip: str) -> Intent | None:
        """The entries whose commits `tip` contains, if any: all, or the first ones."""
        for count in range(len(self.entries), 0, -1):
            part = Intent(self.entries[:count])
            if hub.succeeds("merge-base", "--is-ancestor", part.commit, tip):
                return part
        return None


class LaneRefs:
    def __init__(self, hub: Git, lane: str) -> None:
        self._git, self._hub = hub, Hub(hub.folder)
        self._landed, self._intent = (
            f"refs/hv/lanes/{lane}/{name}" for name in ("landed", "landing")
        )

    def landed(self) -> str | None:
        """The newest commit that landed."""
        return self._git.commit_of(self._landed)

    def set_landed(self, commit: str) -> None:
        self._hub.update_ref(self._landed, commit)

    def intent(self) -> Intent | None:
        record = self._git.commit_of(self._intent)
        if record is None:
            return None
        facts = json.loads(self._git.text("log", "-1", "--format=%B", record, "--"))
        return Intent(tuple((name, commit, verified) for name, commit, verified in facts))

    def set_intent(self, entries: Sequence[tuple[str, str, bool]]) -> None:
        """As a commit on top of the last one, so that the last one is kept as well."""
        text = json.dumps(list(entries)).encode()
        top = entries[-1][1]
        words = (*DURABLE, "commit-tree", "-p", top, "-F", "-", tree_of(self._git, top))
        self._hub.update_ref(self._intent, self._git.text(*words, stdin=text))

    def clear_intent(self) -> None:
        self._hub.delete_refs([self._intent])
