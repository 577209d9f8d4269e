"""Disks without space: what does not fit is refused whole; work continues once there is room."""

from __future__ import annotations

from contextlib import closing
from itertools import product

from hypervisor.selftest.crew import ForkServer
from hypervisor.selftest.part import Figures, Setting, Skipped, ensure

SIZE = 1_000_000
LIMITS = ("full_disk", "short_files")


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the disk of a PostgreSQL server is not filled")
    figures = {"full disks": 0, "changes before they were full": 0}
    with closing(ForkServer("hypervisor.selftest.disk_jobs")) as crew:
        for limit, completing in product(LIMITS, (False, True)):
            folder = setting.folder / f"{limit}{completing}"
            folder.mkdir()
            child = crew.start(limit, str(folder), SIZE, completing, bug=setting.bug)
            answer = child.hear()
            if "skip" in answer:  # no small file system; a limit on the size of files is left
                continue
            ensure(child.wait() == 0, "the worker on a full disk failed")
            ensure(answer["code"] == "store_full", f"a full disk was reported as {answer['code']}")
            ensure(answer["kept"], "a refused change left something behind")
            ensure(answer["integrity"] == "ok", f"the store is damaged: {answer['integrity']}")
            before, after = (sum(answer[when].values()) for when in ("before", "after"))
            ensure(after == before + 1, "tasks were lost on a full disk")
            figures["full disks"] += 1
            figures["changes before they were full"] += answer["acknowledged"]
            setting.tell(f"{figures['full disks']} full disks")
    return figures
