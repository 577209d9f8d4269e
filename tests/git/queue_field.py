"""A repository in which merge queues are tested, and how to read their decisions."""

from __future__ import annotations

import os
from pathlib import Path

from hypervisor.git.bench import Benches
from hypervisor.git.decisions import (
    Entry,
    EntryLanded,
)
from hypervisor.git.landing import Destination
from hypervisor.git.merge_queue import Lane, MergeQueue
from hypervisor.git.verify import MemoryCache, Verifier
from hypervisor.selftest.repositories import Repo, bare_clone, write_script

BRANCH = "hv/nightly"
# Passes unless a file bad-* is there, or both halves of a pair. It records each tree that it
# checks.
CHECK = """#!/bin/sh
tree=$(git write-tree)
echo "run $tree" >> '{log}'
if ls bad-* >/dev/null 2>&1; then echo "found $(ls bad-*)"; exit 1; fi
if test -e one-half && test -e other-half; then echo "both halves"; exit 1; fi
echo "passed $tree" >> '{log}'
"""


class Field:
    """A repository with its hub, and a verification that records what it checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = Repo(folder / "the repository")
        self.base = self.repo.commit({"f": "1\n", ".gitignore": "*.cache\n"}, "first")
        self.hub = bare_clone(self.repo, folder / "hub.git")
        self.log = folder / "verified"
        self.check = write_script(folder / "check", CHECK.format(log=self.log))
        self.cache = MemoryCache()
        self.moves: list[str] = []

    def entry(self, name: str, *changes: dict[str, str | None], strategy="merge") -> Entry:
        """A task's commits, which only the hub has."""
        head = self.repo.branch(name, self.base, *changes)
        ref = f"refs/hv/tasks/{name}/1"
        self.hub.run("fetch", "--quiet", str(self.repo.folder), f"{name}:{ref}")
        self.repo.git.run("branch", "--quiet", "-D", name)
        return Entry(name, head, self.base, f"Merge {name}", strategy)

    def entries(self, count: int, bad: tuple[int, ...] = (), strategy="merge") -> list[Entry]:
        return [
            self.entry(
                f"t{n}", {f"{'bad' if n in bad else 'good'}-{n}": f"{n}\n"}, strategy=strategy
            )
            for n in range(1, count + 1)
        ]

    def lane(self, destination=None, *, commands=None, **options) -> Lane:
        width = options.pop("width", 1)
        verifier = Verifier(
            self.hub,
            Benches(self.hub, str(self.folder / "benches"), "lane", width),
            [self.check] if commands is None else commands,
            outputs=str(self.folder / "verify"),
            cache=self.cache,
            environment={"PATH": os.environ["PATH"]},
            time_limit=60.0,
        )
        destination = destination or self.branch()
        return Lane(destination, verifier, self.base, lambda: width, **options)

    def branch(self) -> Destination:
        return Destination(self.hub, str(self.repo.folder), "lane", BRANCH)

    def run(self, entries, lane=None):
        return list(MergeQueue(lane or self.lane()).run(entries))

    def lines(self, kind: str) -> list[str]:
        if not self.log.exists():
            return []
        pairs = (line.split() for line in self.log.read_text().splitlines())
        return [tree for what, tree in pairs if what == kind]

    def passed(self, commit: str | None) -> bool:
        assert commit
        return self.hub.text("rev-parse", f"{commit}^{{tree}}") in self.lines("passed")


def landed(decisions):
    return [decision.entry.id for decision in decisions if isinstance(decision, EntryLanded)]


def only(decisions, kind):
    (found,) = [decision for decision in decisions if isinstance(decision, kind)]
    return found


def names(count, without=()):
    return [f"t{n}" for n in range(1, count + 1) if n not in without]
