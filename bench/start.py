"""make bench-start: how long the commands that agents call most take from a cold start.

Measured through ./hv, in turns with `python -c "import sqlite3"` by the same interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.fill import Plan, fill_sqlite
from bench.support import progress, save, scratch, table, verdict

import hypervisor
from hypervisor.core.ids import ENTROPY_BITS, EPOCH

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
PYTHON = ROOT / ".venv" / "bin" / "python"
SIZES = (1_000, 100_000)
BAR = 3.0
BARE = 'python -c "import sqlite3"'


def timed(command: list[str], store: str = "") -> tuple[float, str]:
    """Milliseconds from start to end, and what it printed."""
    environment = {**os.environ, "HYPERVISOR_STORE": store}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    spent = (time.perf_counter() - start) * 1e3
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return spent, done.stdout


def token(printed: str) -> str:
    """The claim's token, wherever the answer keeps it."""
    answer = json.loads(printed)
    while not isinstance(answer, dict) or "token" not in answer:
        answer = next(iter(answer.values())) if isinstance(answer, dict) else answer[0]
    return str(answer["token"])


def one_turn(store: str, times: dict[str, list[float]]) -> None:
    """The bare interpreter, then each of the commands."""

    def note(name: str, command: list[str]) -> str:
        spent, printed = timed(command, store)
        times.setdefault(name, []).append(spent)
        return printed

    note(BARE, [str(PYTHON), "-c", "import sqlite3"])
    claimed = token(note("hv claim", [str(HV), "claim", "--worker", "bench", "--json"]))
    note("hv heartbeat", [str(HV), "heartbeat", claimed])
    note("hv done", [str(HV), "done", claimed])
    for name in ("ls", "status", "--help"):
        note(f"hv {name}", [str(HV), name])


def make_store(path: str, size: int) -> None:
    hypervisor.open(path).close()
    now = time.time_ns() // 1_000_000
    fill_sqlite(path, [Plan("active", size, (now - EPOCH) << ENTROPY_BITS)], now)


def main() -> int:
    args = _arguments()
    figures: list[dict[str, Any]] = []
    with scratch(args.dir) as folder:
        stores = {size: str(folder / f"{size}.db") for size in SIZES}
        times: dict[int, dict[str, list[float]]] = {size: {} for size in SIZES}
        for size, path in stores.items():
            progress(f"a store with {size:,} tasks")
            make_store(path, size)
            one_turn(path, {})  # everything into the disk cache, byte code written
        for number in range(args.turns):
            progress(f"turn {number + 1} of {args.turns}")
            for size, path in stores.items():
                one_turn(path, times[size])
    for size, by_name in times.items():
        bare = median(by_name[BARE])
        for name, spent in by_name.items():
            ratio = median(spent) / bare
            figures.append({"tasks": size, "command": name, "ms": median(spent), "ratio": ratio})
    _report(figures, args)
    return 0


def _report(figures: list[dict[str, Any]], args: argparse.Namespace) -> None:
    cells = [
        (
            f["command"],
            f"{f['tasks']:,}",
            f"{f['ms']:.1f}",
            f"{f['ratio']:.2f}",
            "" if f["command"] == BARE else verdict(f["ratio"] <= BAR),
        )
        for f in figures
    ]
    print(table(("command", "tasks", "ms", "ratio", f"bar {BAR:.0f}×"), cells))
    answer = {"bar": BAR, "turns": args.turns, "commands": figures}
    print(f"\nwritten to {save(args.json, 'start', answer)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="starts of each command")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/start.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
