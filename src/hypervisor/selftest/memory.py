"""A command that takes more memory than it may: it is stopped, and the reason is kept."""

from __future__ import annotations

import json
import sys
from contextlib import closing

from hypervisor.selftest.part import Figures, Setting, Skipped, ensure
from hypervisor.selftest.project import Project

LIMIT_MB, WANTED_MB = 150, 600
HOG = f"""
import time
taken = []
for _ in range({WANTED_MB}):
    taken.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.004)
time.sleep(60)
"""


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the same with either database; run with the default store")
    folder = setting.folder / "memory"
    folder.mkdir()
    with closing(Project(folder)) as project:
        (project.folder / "hog.py").write_text(HOG)
        ended = project.hv(
            "run", "--name", "hog", "--item", "x", "--memory", f"{LIMIT_MB}MB", "--json",
            "--", sys.executable, "hog.py",
        )  # fmt: skip
        ensure(ended.code != 0, "a command over its memory limit was successful")
        (task,) = json.loads(project.hv("ls", "--json").out)
        reason = task["reason"] or ""
        ensure("memory" in reason, f"it was stopped, but not for its memory: {reason!r}")
        shown = json.loads(project.hv("show", task["id"], "--json").out)
        peak = max((each.get("peak_bytes") or 0) for each in shown["detail"]["attempts"])
    ensure(peak < WANTED_MB << 20, f"it had taken {peak >> 20} MB before it was stopped")
    return {"megabytes at most": peak >> 20}
