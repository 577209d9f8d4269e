"""python -m bench.triage: thousands of Markdown tasks, against the script that it replaces.

The script is what people write for this: some processes walk over the same files, one lock
folder per item, PyYAML as it comes, the edit by rewriting the file, one YAML file per result,
nothing ever synced. It makes the same decisions by the same rules (the very same function),
writes status, complexity, assignee and links into the file as ours does, and its edit is the
cheapest that works at all. It keeps no receipts, no history and no progress. Ours is the whole
program on a fresh store. Both get the same files, in turns within one run. Wall time is from
start to end, set-up included. The processor time is that of all processes, also of those
that outlive the command: on a busy machine it is the figure to compare.

Afterwards every file is compared with what it was: only the lines that triage is about may
differ. For the script that is only counted, for ours it must hold.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, table, verdict

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
PYTHON = ROOT / ".venv" / "bin" / "python"
INBOX = ROOT / "examples" / "inbox"
FUNCTION = "hypervisor.skills.builtin.triage:run"
OURS, SCRIPT, ALONE = "hv run triage", "lock folders and YAML files", "the function, one process"
CROWD = "hv run triage, twice as many"
BAR = 1.0
PR_SET_CHILD_SUBREAPER = 36
FRONT = re.compile(r"\A---\n(.*?)^---\n(.*)\Z", re.DOTALL | re.MULTILINE)
ABOUT = re.compile(rb"(?:status|complexity|assignee):|\[\[[^\]]+\]\][\r\n]*\Z")
NUMBER = re.compile(rb"^id: .*?(?=\r?$)", re.MULTILINE)
RECEIPTS = b"## Receipts"


def main() -> int:
    args = _arguments()
    if args.script:
        run_script(Path(args.script))
        return 0
    if args.quick:
        args.files, args.rounds = min(args.files, 1_000), 1
    adopt_orphans()
    turns: dict[str, list[Cost]] = {SCRIPT: [], OURS: [], CROWD: [], ALONE: []}
    if args.quick:
        turns = {SCRIPT: [], OURS: []}
    harmed = dict.fromkeys(turns, 0)
    with scratch(args.dir) as parent:  # for all: ext4 slows down the next system after a removal
        for turn in range(1, args.rounds + 1):
            for number, name in enumerate(turns):
                progress(f"round {turn} of {args.rounds}: {name}")
                folder = parent / f"{turn}-{number}"
                folder.mkdir()
                tasks = make_tasks(folder / "tasks", args.files)
                os.sync()
                turns[name].append(_measure(name, folder, args))
                harmed[name] += count_harmed(tasks, folder / "tasks")
    return _report(turns, harmed, args)


def make_tasks(folder: Path, count: int) -> dict[str, bytes]:
    """So many files, made from those of the example inbox; each differs in id and text."""
    folder.mkdir()
    examples = [path.read_bytes() for path in sorted(INBOX.glob("*.md"))]
    tasks = {}
    for number in range(count):
        text = examples[number % len(examples)]
        text = NUMBER.sub(b"id: b-%06d" % number, text, count=1)
        if text.endswith(b"\n"):
            end = b"\r\n" if text.endswith(b"\r\n") else b"\n"
            text += end + b"Seen on machine %d, shelf %d." % (number % 97, number % 13) + end
        name = f"{number:06}.md"
        (folder / name).write_bytes(text)
        tasks[name] = text
    return tasks


class Cost(NamedTuple):
    seconds: float
    cpu: float


def adopt_orphans() -> None:
    """What a command leaves running becomes our child, so that its time is counted, too."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _measure(name: str, folder: Path, args: argparse.Namespace) -> Cost:
    os.sync()  # what the one before left unwritten must not be this one's burden
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    if name in (OURS, CROWD):
        _run_ours(folder, args.processes // (2 if name == OURS else 1), args)
    elif name == SCRIPT:
        _run_scripts(folder, args.processes)
    else:
        _run_alone(folder)
    seconds = time.perf_counter() - started
    _wait_for_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _wait_for_orphans() -> None:
    until = time.monotonic() + 60
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)


def _run_ours(folder: Path, workers: int, args: argparse.Namespace) -> None:
    """A worker that calls a function is two processes: itself and the interpreter."""
    what = ["triage", "tasks"]
    if args.function:
        items = folder / "items.jsonl"
        names = sorted(os.listdir(folder / "tasks"))
        items.write_text("".join(json.dumps({"path": f"tasks/{name}"}) + "\n" for name in names))
        what = ["--fn", FUNCTION, "--items", str(items)]
    argv = [str(HV), "run", *what, "--store", str(folder / "store"), "--quiet"]
    subprocess.run([*argv, "--workers", str(workers)], cwd=folder, check=True)


def _run_scripts(folder: Path, processes: int) -> None:
    argv = [str(PYTHON), "-m", "bench.triage", "--script", str(folder)]
    running = [subprocess.Popen(argv, cwd=ROOT) for _ in range(processes)]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit("the script failed")


def _run_alone(folder: Path) -> None:
    code = (
        "import os\nfrom hypervisor.skills.builtin.triage import run\n"
        "for name in sorted(os.listdir('tasks')): run('tasks/' + name)\n"
    )
    (folder / ".hypervisor").mkdir()
    subprocess.run([str(PYTHON), "-c", code], cwd=folder, check=True)


def run_script(folder: Path) -> None:
    """The pattern that is replaced: the process that creates the lock folder does the item."""
    import yaml

    from hypervisor.skills.builtin.triage_rules import rules_for

    rules = rules_for(str(folder))
    for place in ("locks", "results"):
        (folder / place).mkdir(exist_ok=True)
    for name in sorted(os.listdir(folder / "tasks")):
        try:
            os.mkdir(folder / "locks" / name)
        except FileExistsError:
            continue
        result = _by_script(folder / "tasks" / name, rules)
        with open(folder / "results" / f"{name}.yaml", "w", encoding="utf-8") as file:
            yaml.safe_dump(result, file)


def _by_script(path: Path, rules: Any) -> dict[str, Any]:
    import yaml

    from hypervisor.skills.builtin.triage_decide import Note, decide

    found = FRONT.match(path.read_text(encoding="utf-8-sig"))
    if found is None:
        return {"path": str(path), "category": "unreadable", "rationale": "no front matter"}
    try:
        fields = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        return {"path": str(path), "category": "unreadable", "rationale": str(error)}
    decision = decide(fields, found[2], str(path), rules, Note())
    if decision.changes():
        path.write_text(_rewritten(found[1], found[2], decision), encoding="utf-8")
    rationale = "; ".join(decision.why)
    changed = decision.changes()
    return {
        "path": str(path),
        "category": decision.category,
        "rationale": rationale,
        "changed": changed,
        "status": "done",
    }


def _rewritten(front: str, body: str, decision: Any) -> str:
    for key, value in decision.fields.items():
        line = f"{key}: {value}\n"
        front, count = re.subn(rf"^{key}:.*\n", line, front, count=1, flags=re.MULTILINE)
        front = front if count else front + line
    links = "".join(f"\n{link}\n" for link in decision.links)
    return f"---\n{front}---\n{body}{links}"


def count_harmed(before: dict[str, bytes], folder: Path) -> int:
    """Files in which more than the lines that triage is about differs."""
    return sum(
        list(_others(old)) != list(_others(_above_receipts((folder / name).read_bytes(), old)))
        for name, old in before.items()
    )


def _above_receipts(new: bytes, old: bytes) -> bytes:
    return new if RECEIPTS in old else new.partition(RECEIPTS)[0]


def _others(data: bytes) -> Iterator[bytes]:
    """The lines that must stay; whether the last one is ended, and blank ones, do not count."""
    lines = data.splitlines(keepends=True)
    if lines and not lines[-1].endswith((b"\n", b"\r")):
        lines[-1] += b"\r\n" if b"\r\n" in data else b"\n"
    return (line for line in lines if line.strip() and not ABOUT.match(line))


def _report(turns: dict[str, list[Cost]], harmed: dict[str, int], args: argparse.Namespace) -> int:
    rates = {name: args.files / median(c.seconds for c in some) for name, some in turns.items()}
    cpu = {name: 1000 * min(c.cpu for c in some) / args.files for name, some in turns.items()}
    cells = [
        (
            name,
            str({ALONE: 1, CROWD: 2 * args.processes}.get(name, args.processes)),
            f"{rate:,.0f}",
            f"{rate / rates[SCRIPT]:.2f}×",
            f"{cpu[name]:.2f}",
            f"{harmed[name]:,}",
        )
        for name, rate in rates.items()
    ]
    head = ("how", "processes", "files/s", "to the script", "CPU ms/file", "files harmed")
    print(table(head, cells))
    ratio = rates[OURS] / rates[SCRIPT]
    bars = [
        ("files/s, ours / script", f"≥ {BAR}×", f"{ratio:.2f}×", verdict(ratio >= BAR)),
        ("files harmed by ours", "0", str(harmed[OURS]), verdict(not harmed[OURS])),
    ]
    print()
    print(table(("bar", "wanted", "measured", ""), bars))
    load = {name: getattr(args, name) for name in ("files", "processes", "rounds")}
    answer = {
        **load,
        "turns": {name: [c._asdict() for c in some] for name, some in turns.items()},
        "files_per_second": rates,
        "cpu_ms_per_file": cpu,
        "harmed": harmed,
        "bars": bars,
    }
    print(f"\nwritten to {save(args.json, 'triage', answer)}")
    return 1 if harmed[OURS] or harmed.get(ALONE) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.triage", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1,000 files once, without the rest")
    parser.add_argument("--function", action="store_true", help="use --fn, not `hv run triage`")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/triage.json")
    parser.add_argument("--script", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
