"""A merge queue as a process of its own, which is killed.

Its ledger is a file: a line for each decision about an entry. An entry in it is never decided
again.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from hypervisor.git import hub, landing
from hypervisor.git.bench import Benches
from hypervisor.git.command import Git
from hypervisor.git.decisions import Entry, EntryConflicted, EntryFailed, EntryLanded
from hypervisor.git.landing import Destination
from hypervisor.git.merge_queue import Lane, MergeQueue
from hypervisor.git.verify import Verdict, Verifier
from hypervisor.selftest.jobs import say

DONE = (EntryLanded, EntryFailed, EntryConflicted)


class FolderCache:
    """Verdicts as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def get(self, tree: str, digest: str) -> Verdict | None:
        path = self._folder / f"{tree}-{digest}"
        return Verdict(*json.loads(path.read_text())) if path.exists() else None

    def put(self, tree: str, digest: str, verdict: Verdict) -> None:
        # Several threads of one process may have verified the same tree.
        new = self._folder / f"{tree}-{digest}.{os.getpid()}.{threading.get_ident()}.new"
        new.write_text(json.dumps(verdict))
        new.rename(self._folder / f"{tree}-{digest}")


def read_ledger(folder: Path) -> list[dict[str, Any]]:
    path = folder / "ledger"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def line_of(decision: EntryLanded | EntryFailed | EntryConflicted) -> dict[str, Any]:
    facts = {"id": decision.entry.id, "kind": type(decision).__name__}
    if isinstance(decision, EntryLanded):
        return {**facts, "commit": decision.commit, "already": decision.already}
    return facts


def merge(path: str) -> None:
    """The job: merge what is queued, then end."""
    folder = Path(path)
    facts = json.loads((folder / "lane.json").read_text())
    git = Git(facts["hub"])
    landing.STALE_LOCK = hub.STALE_LOCK = 0.0  # no other process works here
    hub.clear_stale_locks(git.folder)
    benches = Benches(git, str(folder / "benches"), "lane", facts["width"])
    verifier = Verifier(
        git,
        benches,
        facts["commands"],
        outputs=str(folder / "verify"),
        cache=FolderCache(folder / "verdicts"),
        environment={"PATH": os.environ["PATH"]},
    )
    where = Destination(git, facts["repository"], "lane", facts["target"], facts["mode"], "hv/kept")
    lane = Lane(where, verifier, facts["base"], lambda: int(facts["width"]))
    decided = {line["id"] for line in read_ledger(folder)}
    queued = [Entry(*each) for each in json.loads((folder / "queue.json").read_text())]
    say("ready")
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for decision in MergeQueue(lane).run([entry for entry in queued if entry.id not in decided]):
        if isinstance(decision, DONE):
            os.write(ledger, json.dumps(line_of(decision)).encode() + b"\n")
