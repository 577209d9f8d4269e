"""The dashboard over 100,000 tasks with 64 running: how long a page takes, how much memory the
server needs, how far open tabs are behind, and what they cost the claims of others.

Claims are measured without tabs and with them, in rounds that alternate which comes first: only
the ratios within a round mean much, and their median is what is held to the bar. `--control` adds
an idle-priority loop that uses as much processor time as the server did.

A tab is behind by the time from just before a claim to the moment it shows the running task. Some
tasks stay running for a few seconds for this, while all others end at once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench import fill, support
from bench.dashboard_tabs import Seen, Tabs

import hypervisor

RUNNING = 64
KEPT = 16  # of them stay running until others have been claimed after them …
KEEP_EVERY = 0.25  # … every so many seconds
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
BAR_PAGE, BAR_FILTER, BAR_MEMORY, BAR_P99, BAR_BEHIND = 1.0, 0.3, 90.0, 1.05, 1.0
PATIENCE = 60.0
SETTLE = 1.0  # seconds between opening tabs and measuring
LOOP = """
import os, time
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    end = time.thread_time() + {busy}
    while time.thread_time() < end:
        pass
    time.sleep({idle})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--tabs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=1_000, help="claims in half a round")
    parser.add_argument("--control", action="store_true", help="also against an idle loop")
    parser.add_argument("--chromium", action="store_true", help="also with tabs of a Chromium")
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
        half = args.tasks // 2
        plans = [fill.Plan("done", half, 0), fill.Plan("active", half, half)]
        fill.fill_sqlite(store, plans, hv.now() - 3_600_000)
        claims = Claims(hv)
        hv.stats()
        command = [sys.executable, "-m", "hypervisor", "dashboard", "--store", store, "--no-open"]
        began = time.perf_counter()
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http" in line)
            base, _, token = line.split()[-1].partition("/#t=")
            get = _getter(base, token)
            get("/")
            started = time.perf_counter() - began
            answer = {
                "tasks": args.tasks,
                "running": RUNNING,
                "tabs": args.tabs,
                "start_seconds": started,
                "pages_seconds": {n: _best(lambda path=p: get(path)) for n, p in PAGES.items()},
            }
            answer |= _claims_beside(claims, Tabs(base, token, args.tabs), server.pid, args)
            if args.chromium:
                answer["chromium"] = _in_chromium(claims, base, token, args)
            return {**answer, "server_mb": _memory(server.pid)}
        finally:
            server.terminate()
            server.wait(PATIENCE)


def _getter(base: str, token: str) -> Callable[[str], bytes]:
    def get(path: str) -> bytes:
        headers = {"Authorization": f"Bearer {token}"}
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers)) as answer:
            return bytes(answer.read())

    return get


class Claims:
    """Completes a task and claims the next, again and again."""

    def __init__(self, hv: Any) -> None:
        self._hv = hv
        self._next, *others = [
            lease.token for lease in hv.claim("bench", limit=RUNNING, lease=3_600_000)
        ]
        self._kept = others[:KEPT]  # oldest first
        self.kept: dict[str, float] = {}  # task -> just before it was claimed

    def run(self, turns: int) -> list[float]:
        """Seconds of each turn."""
        took = []
        keep_at = time.monotonic() + KEEP_EVERY
        for _ in range(turns):
            keeps = time.monotonic() >= keep_at
            token = self._kept.pop(0) if keeps else self._next
            now, began = time.time(), time.perf_counter()
            _, [lease] = self._hv.complete_and_claim([(token, None)], "bench")
            took.append(time.perf_counter() - began)
            if keeps:
                keep_at += KEEP_EVERY
                self._kept.append(lease.token)
                self.kept[lease.task.id] = now
            else:
                self._next = lease.token
            time.sleep(0.002)
        return took


class Side(NamedTuple):
    """One half of a round."""

    p99: float  # milliseconds
    median: float
    server: float  # processors that the server used


def _claims_beside(
    claims: Claims, tabs: Tabs, pid: int, args: argparse.Namespace
) -> dict[str, Any]:
    support.progress("claims, in turns without and with open tabs")
    sides: dict[str, list[Side]] = {"without": [], "with tabs": []}
    behind: list[float] = []
    if args.control:
        sides["control"] = []
    try:
        for number in range(args.rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                if name == "with tabs":
                    side, more = _beside_tabs(claims, tabs, pid, args)
                    behind += more
                elif name == "control":
                    server = [side.server for side in sides["with tabs"]] or [0.1]
                    side = _beside_loop(claims, statistics.median(server), pid, args)
                else:
                    side = _side(claims, pid, args.turns)
                sides[name].append(side)
    finally:
        tabs.end()
    ratios = {name: _ratios(sides["without"], sides[name]) for name in list(sides)[1:]}
    return {
        "claims": {name: [side._asdict() for side in each] for name, each in sides.items()},
        "ratios": ratios,
        "behind_seconds": _spread(behind),
    }


def _beside_tabs(
    claims: Claims, tabs: Tabs, pid: int, args: argparse.Namespace
) -> tuple[Side, list[float]]:
    tabs.open()
    time.sleep(SETTLE)
    claims.kept.clear()
    side = _side(claims, pid, args.turns)
    time.sleep(SETTLE)
    return side, _behind(claims.kept, tabs.close(), args.tabs)


def _beside_loop(claims: Claims, share: float, pid: int, args: argparse.Namespace) -> Side:
    code = LOOP.format(busy=share * 0.05, idle=(1 - share) * 0.05)
    loop = subprocess.Popen([sys.executable, "-c", code])
    try:
        time.sleep(SETTLE)
        return _side(claims, pid, args.turns)
    finally:
        loop.kill()
        loop.wait()


def _side(claims: Claims, pid: int, turns: int) -> Side:
    used, began = _processor(pid), time.perf_counter()
    took = sorted(claims.run(turns))
    share = (_processor(pid) - used) / (time.perf_counter() - began)
    return Side(took[int(turns * 0.99)] * 1000, took[turns // 2] * 1000, share)


def _ratios(without: list[Side], others: list[Side]) -> dict[str, list[float]]:
    return {
        "p99": [b.p99 / a.p99 for a, b in zip(without, others, strict=True)],
        "median": [b.median / a.median for a, b in zip(without, others, strict=True)],
    }


def _behind(kept: dict[str, float], seen: Seen, tabs: int) -> list[float]:
    """Seconds, for each task and tab. One that was never shown counts as long as it was kept."""
    never = KEPT * KEEP_EVERY
    return [
        seen.get(task, {}).get(tab, claimed + never) - claimed
        for task, claimed in kept.items()
        for tab in range(tabs)
    ]


def _in_chromium(claims: Claims, base: str, token: str, args: argparse.Namespace) -> dict[str, Any]:
    """How far real tabs are behind. What they use themselves is a browser's, so claims beside
    them are held to no bar."""
    support.progress("tabs of a Chromium")
    without = claims.run(args.turns)
    tabs = Tabs(base, token, args.tabs, "chromium")
    try:
        tabs.open()
        time.sleep(SETTLE)
        claims.kept.clear()
        beside = claims.run(args.turns * 2)
        time.sleep(SETTLE)
        behind = _behind(claims.kept, tabs.close(), args.tabs)
    finally:
        tabs.end()
    ratio = _p99(beside) / _p99(without)
    return {"behind_seconds": _spread(behind), "claim_p99_ratio": ratio}


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def _spread(seconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "median": statistics.median(ordered),
        "p95": ordered[int(len(ordered) * 0.95)],
        "max": ordered[-1],
    }


def _best(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def _memory(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processor(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown(answer: dict[str, Any]) -> str:
    rows = [_row("start, with the first page", answer["start_seconds"], BAR_PAGE)]
    for name, seconds in answer["pages_seconds"].items():
        rows.append(_row(name, seconds, BAR_FILTER if "," in name else BAR_PAGE))
    memory = answer["server_mb"]
    rows.append(["memory of the server", f"{memory:.0f} MB", support.verdict(memory < BAR_MEMORY)])
    rows += _behind_rows("tabs behind", answer["behind_seconds"])
    for name, sides in answer["claims"].items():
        for figure in ("p99", "median"):
            value = statistics.median(side[figure] for side in sides)
            rows.append([f"claim {figure} {name}", f"{value:.2f} ms", ""])
    share = statistics.median(side["server"] for side in answer["claims"]["with tabs"])
    rows.append(["processor of the server", f"{share:.0%}", ""])
    for name, ratios in answer["ratios"].items():
        for figure, each in ratios.items():
            ratio = statistics.median(each)
            is_held = name == "with tabs" and figure == "p99"
            verdict = support.verdict(ratio <= BAR_P99) if is_held else ""
            rows.append([f"{figure}, {name} / without", f"{ratio:.2f}", verdict])
    if found := answer.get("chromium"):
        rows += _behind_rows("tabs of a Chromium behind", found["behind_seconds"])
        rows.append(["p99, with a Chromium / without", f"{found['claim_p99_ratio']:.2f}", ""])
    return support.table(["", "measured", "bar"], rows)


def _row(name: str, seconds: float, bar: float) -> list[str]:
    return [name, f"{seconds * 1000:.0f} ms", support.verdict(seconds < bar)]


def _behind_rows(name: str, spread: dict[str, float]) -> list[list[str]]:
    return [
        [f"{name}, median of {spread['count']:,}", f"{spread['median'] * 1000:.0f} ms", ""],
        [f"{name}, 95 %", f"{spread['p95'] * 1000:.0f} ms", ""],
        _row(f"{name}, max", spread["max"], BAR_BEHIND),
    ]


if __name__ == "__main__":
    main()
