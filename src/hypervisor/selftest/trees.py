"""Commands whose processes try to escape: when an attempt is stopped, none of them is left."""

from __future__ import annotations

import os
import random
from contextlib import closing
from functools import partial
from pathlib import Path

from hypervisor.selftest.part import Figures, Setting, Skipped, ensure
from hypervisor.selftest.project import Project, wait_until

# Each ends up with a process that sleeps for {}, and would outlive its parent.
ESCAPES = {
    "a child": "sleep {} & wait",
    "a session of its own": "setsid sleep {} & wait",
    "a daemon": "(setsid sh -c 'sleep {} & exit' &) ; sleep {}",
    "no environment": "env -i setsid sleep {} & wait",
    "deaf to signals": "trap '' TERM INT HUP; setsid sleep {} & while :; do sleep 0.1; done",
}
PATIENCE = 30.0


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the same with either database; run with the default store")
    dice = random.Random(setting.seed)
    folder = setting.folder / "trees"
    folder.mkdir()
    with closing(Project(folder)) as project:
        for number, (name, script) in enumerate(ESCAPES.items()):
            length = f"{86_400 + dice.randrange(10**6)}.{number}"
            ended = project.hv(
                "run", "--name", f"tree{number}", "--item", "x", "--timeout", "2s", "--shell",
                "--", script.replace("{}", length),
            )  # fmt: skip
            ensure(ended.code != 0, f"{name}: an attempt over its time limit was successful")
            gone = wait_until(partial(_are_gone, length), PATIENCE)
            ensure(gone, f"{name}: process {_sleepers(length)} outlived its attempt")
            setting.tell(f"{number + 1} of {len(ESCAPES)} escapes")
    return {"escapes prevented": len(ESCAPES)}


def _are_gone(length: str) -> bool:
    return not _sleepers(length)


def _sleepers(length: str) -> list[int]:
    """The processes that sleep for exactly this long."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", length.encode()]:
                found.append(int(name))
    return found
