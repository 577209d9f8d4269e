"""The dashboard over 100,000 tasks with 64 running: how long a page takes, how much memory the
server needs, and what open tabs cost the claims of others.

Claims are measured in turns, without tabs and with them, in one run: only their ratio means much.
A tab is a client that keeps the stream of events open and asks for the parts of the home page every
second, which is what a browser does while tasks end all the time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import fill, support

import hypervisor

RUNNING = 64
PAGES = {
    "home": "/",
    "batches": "/batches",
    "tasks": "/tasks",
    "tasks, failed": "/tasks?state=failed",
    "tasks, text": "/tasks?text=item+4242",
    "tasks, no match": "/tasks?text=nothing+like+it",
    "events": "/events",
    "metrics": "/metrics",
}
PARTS = ("needs", "running", "waiting")
BAR_PAGE, BAR_FILTER, BAR_MEMORY, BAR_P99 = 1.0, 0.3, 90.0, 1.05
PATIENCE = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--tabs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=400, help="claims in a round")
    parser.add_argument("--dir", help="folder for the store")
    parser.add_argument("--json")
    args = parser.parse_args()
    with support.scratch(args.dir) as folder:
        answer = measure(folder, args)
    print(shown(answer))
    print(support.save(args.json, "dashboard", answer))


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    store = str(folder / ".hypervisor" / "store.db")
    support.progress(f"filling a store with {args.tasks:,} tasks")
    with hypervisor.open(store) as hv:
        tenth = args.tasks // 10
        plans = [fill.Plan("done", tenth * 7, 0), fill.Plan("active", tenth * 3, tenth * 7)]
        fill.fill_sqlite(store, plans, hv.now() - 3_600_000)
        leases = hv.claim("bench", limit=RUNNING, lease=3_600_000)
        hv.stats()
        server = subprocess.Popen(
            [sys.executable, "-m", "hypervisor", "dashboard", "--store", store, "--no-open"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            return _measure(hv, server, leases, args)
        finally:
            server.terminate()
            server.wait(PATIENCE)


def _measure(
    hv: Any, server: subprocess.Popen[str], leases: Any, args: argparse.Namespace
) -> dict[str, Any]:
    began = time.perf_counter()
    assert server.stdout is not None
    line = next(line for line in server.stdout if "http" in line)
    started = time.perf_counter() - began
    base, _, token = line.split()[-1].partition("/#t=")
    get = _getter(base, token)
    pages = {name: _best(lambda path=path: get(path)) for name, path in PAGES.items()}
    support.progress("claims, in turns without and with open tabs")
    without, with_tabs = [], []
    token_of = leases[0].token
    for _ in range(args.rounds):
        seconds, token_of = _claims(hv, token_of, args.turns)
        without.append(seconds)
        opened = Tabs(base, token, args.tabs)
        try:
            seconds, token_of = _claims(hv, token_of, args.turns)
        finally:
            opened.close()
        with_tabs.append(seconds)
    return {
        "tasks": args.tasks,
        "running": RUNNING,
        "tabs": args.tabs,
        "start_seconds": started,
        "pages_seconds": pages,
        "server_mb": _memory(server.pid),
        "claim_p99_ms": {
            "without": _p99(without),
            "with tabs": _p99(with_tabs),
        },
        "claim_median_ms": {
            "without": _median(without),
            "with tabs": _median(with_tabs),
        },
    }


def _getter(base: str, token: str) -> Callable[..., bytes]:
    def get(path: str, part: bool = False) -> bytes:
        headers = {"Authorization": f"Bearer {token}", **({"HX-Request": "true"} if part else {})}
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers)) as answer:
            return bytes(answer.read())

    return get


class Tabs:
    """Clients with the home page open, in a process of their own."""

    def __init__(self, base: str, token: str, count: int) -> None:
        code = f"from bench.dashboard import tabs; tabs({base!r}, {count})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(token.encode() + b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()  # all are open

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)


def tabs(base: str, count: int) -> None:
    """Keep tabs open until killed. They stand for browsers, mostly on other machines: what they use
    themselves must not count."""
    os.nice(19)
    token = sys.stdin.readline().strip()
    get = _getter(base, token)
    opened = threading.Semaphore(0)

    def follow() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{base}/events/stream", headers=headers)
        with urllib.request.urlopen(request) as stream:
            opened.release()
            while stream.readline():
                pass

    def look() -> None:
        while True:
            for part in PARTS:
                get(f"/?part={part}", True)
            time.sleep(1)

    for _ in range(count):
        threading.Thread(target=follow, daemon=True).start()
        threading.Thread(target=look, daemon=True).start()
    for _ in range(count):
        opened.acquire(timeout=PATIENCE)
    print("open", flush=True)
    threading.Event().wait()


def _claims(hv: Any, token: str, turns: int) -> tuple[list[float], str]:
    """Seconds of each turn: complete a task and claim the next."""
    took = []
    for _ in range(turns):
        began = time.perf_counter()
        _, [lease] = hv.complete_and_claim([(token, None)], "bench")
        took.append(time.perf_counter() - began)
        token = lease.token
        time.sleep(0.002)
    return took, token


def _best(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def _p99(rounds: list[list[float]]) -> float:
    """The median over the rounds of each one's 99th percentile, in milliseconds."""
    return statistics.median(sorted(times)[int(len(times) * 0.99)] for times in rounds) * 1000


def _median(rounds: list[list[float]]) -> float:
    return statistics.median(statistics.median(times) for times in rounds) * 1000


def _memory(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def shown(answer: dict[str, Any]) -> str:
    p99 = answer["claim_p99_ms"]
    ratio = p99["with tabs"] / p99["without"]
    rows = [
        [
            name,
            f"{seconds * 1000:.0f} ms",
            support.verdict(seconds < (BAR_FILTER if "," in name else BAR_PAGE)),
        ]
        for name, seconds in answer["pages_seconds"].items()
    ]
    memory = answer["server_mb"]
    rows.append(["memory of the server", f"{memory:.0f} MB", support.verdict(memory < BAR_MEMORY)])
    rows.append(["claim p99 without tabs", f"{p99['without']:.2f} ms", ""])
    rows.append(["claim p99 with tabs", f"{p99['with tabs']:.2f} ms", ""])
    rows.append(["with / without", f"{ratio:.2f}", support.verdict(ratio <= BAR_P99)])
    return support.table(["", "measured", "bar"], rows)


if __name__ == "__main__":
    main()
