"""How many workers a batch keeps while other programs use a share of every core.

Starts one process per core that is busy for that share of the time, runs a batch of commands that
sleep, and prints what the governor of this host says each second. `python -m bench.busy_host`
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.support import progress, scratch

PERIOD = 0.1  # seconds: of each, the share is burnt and the rest slept
NAME = "busy-host"
MAX_DRAIN = 20.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=0.62, help="of every core (0.62)")
    parser.add_argument("--workers", type=int, default=8, help="asked for (8)")
    parser.add_argument("--seconds", type=int, default=60, help="how long to look (60)")
    args = parser.parse_args()
    with scratch(None) as folder, foreign_load(args.share):
        progress(f"{args.share:.0%} of {os.cpu_count()} cores are busy with other work")
        with batch(folder, args.workers, args.seconds):
            readings = list(watched(folder, args.seconds))
    judge(readings, args.workers)


@contextmanager
def foreign_load(share: float) -> Iterator[None]:
    """One process per core; the governor counts them as other work, as no worker started them."""
    hogs = [
        multiprocessing.Process(target=burn, args=(share, os.getpid()), daemon=True)
        for _ in range(os.cpu_count() or 1)
    ]
    for hog in hogs:
        hog.start()
    try:
        yield
    finally:
        for hog in hogs:
            hog.terminate()
            hog.join()


def burn(share: float, parent: int) -> None:
    """Use this share of a core, until the parent ends."""
    while os.getppid() == parent:
        until = time.monotonic() + share * PERIOD
        while time.monotonic() < until:
            pass
        time.sleep((1 - share) * PERIOD)


@contextmanager
def batch(folder: Path, workers: int, seconds: int) -> Iterator[None]:
    """Commands that need no CPU, more of them than can run in that time."""
    items = "".join(f"{number}\n" for number in range(workers * (seconds + 10)))
    words = ("--detach", "--name", NAME, "--workers", str(workers), "--", "sh", "-c", "sleep 2")
    hv(folder, "run", *words, stdin=items)
    try:
        yield
    finally:
        hv(folder, "pause", NAME)
        end_supervisor(folder)


def end_supervisor(folder: Path) -> None:
    """Let it drain: nothing may run in a folder that is deleted."""
    deadline, asked = time.monotonic() + MAX_DRAIN, False
    while time.monotonic() < deadline:
        supervisor = json.loads(hv(folder, "status", NAME, "--json"))["supervisor"]
        if supervisor is None:
            return
        if not asked:
            asked = True
            os.kill(supervisor, signal.SIGTERM)
        time.sleep(0.2)


def watched(folder: Path, seconds: int) -> Iterator[dict[str, Any]]:
    print(f"{'second':>6}  {'zone':<9}  {'CPU':>5}  {'own':>5}  {'workers':>7}  says")
    for second in range(1, seconds + 1):
        time.sleep(1)
        host = json.loads(hv(folder, "status", NAME, "--json"))["host"]
        if host:
            load = f"{host['cpu']:5.0%}  {host['own']:5.0%}  {host['workers']:7}"
            print(f"{second:6}  {host['zone']:<9}  {load}  {host['message']}", flush=True)
            yield host


def judge(readings: list[dict[str, Any]], asked: int) -> None:
    """In the second half, when the average has settled: at least half of the workers."""
    settled = [reading["workers"] for reading in readings[len(readings) // 2 :]]
    usual = sorted(settled)[len(settled) // 2] if settled else 0
    print(f"\nusually {usual} of {asked} workers: {'ok' if usual >= asked // 2 else 'too few'}")


def hv(folder: Path, *words: str, stdin: str = "") -> str:
    env = {**os.environ, "HYPERVISOR_STORE": str(folder / "store.db")}
    command = [sys.executable, "-m", "hypervisor", *words]
    return subprocess.run(
        command, input=stdin, env=env, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    main()
