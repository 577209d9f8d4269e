"""What a sandbox costs: `true`, started plainly and at each level that this host can build."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time

from hypervisor.core.errors import SandboxUnavailable
from hypervisor.core.places import Places
from hypervisor.runs.sandbox.attempt import Attempt
from hypervisor.runs.sandbox.level import Level, SandboxSettings
from hypervisor.runs.sandbox.prepare import Sandbox

TIMES = 30
LEVELS: tuple[Level, ...] = ("files", "network")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hv-bench-") as folder:
        project, data, runtime = (os.path.join(folder, n) for n in ("project", "data", "run"))
        for path in (project, data, runtime):
            os.mkdir(path, 0o700)
        env = dict(os.environ)
        plain = _median(lambda: _run(["true"], env, project))
        print(f"none      {plain:6.1f} ms")
        for level in LEVELS:
            sandbox = Sandbox(
                level, SandboxSettings(), Places(data, runtime), worker="0-0", user_env=env
            )
            try:
                wall = sandbox.walls.wall
            except SandboxUnavailable as error:
                print(f"{level:<9} {error}")
                continue
            cost = _median(lambda box=sandbox: _confined(box, env, project))  # type: ignore[misc]
            print(f"{level:<9} {cost:6.1f} ms  ({wall}; {cost - plain:+.1f} ms)")


def _confined(sandbox: Sandbox, env: dict[str, str], project: str) -> None:
    prepared = sandbox.prepare(Attempt("bench.1", ("true",), env, project))
    _run(list(prepared.argv), prepared.env, project)
    sandbox.finish()


def _run(argv: list[str], env: dict[str, str], cwd: str) -> None:
    subprocess.run(argv, env=env, cwd=cwd, check=True)


def _median(work: object) -> float:
    assert callable(work)
    spent = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        spent.append((time.perf_counter() - started) * 1000)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
