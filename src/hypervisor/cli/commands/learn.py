"""hv learn"""

from __future__ import annotations

import argparse

from hypervisor.cli.output import duration, one_line, print_json
from hypervisor.cli.render import money_text
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.core.text import counted
from hypervisor.learning.learn import Gain, Learned, learn_parallelization, learnings
from hypervisor.learning.posterior import Range
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text

EXAMPLE = """hv learn
  hv learn codebase_search --workers 4
  hv learn codebase_search --benefit 0.85 --notes 'saves 60 % of the time'"""
BAR = 40
SHORT_MS = 100  # what is shorter would be 0.0 or 0.1 seconds


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", nargs="?", metavar="TYPE", help="only this type of task")
    parser.add_argument(
        "--workers",
        type=int,
        default=8,
        metavar="N",
        help="how many workers to think of, at most (8)",
    )
    parser.add_argument(
        "--benefit",
        type=float,
        metavar="SHARE",
        help="what share of time parallel saves, as you know it",
    )
    parser.add_argument("--notes", default="", metavar="TEXT", help="why you think so")


def prepare(args: argparse.Namespace) -> None:
    if args.benefit is not None and not args.type:
        raise InvalidInput("say of which type: hv learn TYPE --benefit SHARE.")
    if args.notes and args.benefit is None:
        raise InvalidInput("notes go with --benefit SHARE.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.benefit is not None:
        learn_parallelization(hv, args.type, args.benefit, args.notes)
    found = learnings(hv, args.type, args.workers)
    if args.json:
        print_json(found)
    elif not found:
        print("nothing has been learned yet: every `hv run` teaches something.")
    else:
        print("\n\n".join("\n".join(_shown(each)) for each in found))
    return EXIT_OK


def _shown(each: Learned) -> list[str]:
    lines = [
        f"{one_line(each.name)}: {_basis(each)}",
        *(f"  {line}" for line in (_usual(each), _limits(each), _said(each)) if line),
    ]
    if each.samples or each.said:
        lines += [f"  {line}" for line in _plot(each.gains)]
        lines.append(f"  parallel benefit {_saved(each.parallel_benefit)}")
    workers = counted(each.next.workers, "worker")
    lines.append(f"  next time: {workers}: {one_line(each.next.why)}")
    return lines


def _basis(each: Learned) -> str:
    if each.success is None:
        return "no samples yet"
    changed = f", changed {counted(each.changes, 'time')}" if each.changes else ""
    return f"{counted(each.samples, 'sample')}, {100 * each.success:.0f} % successful{changed}"


def _usual(each: Learned) -> str:
    """What an attempt usually takes: the median, and what nine of ten stay below."""
    parts = []
    if each.seconds is not None:
        usual, most = (_time(value) for value in each.seconds)
        parts.append(f"takes {usual} (9 of 10 below {most})")
    if each.peak_bytes is not None:
        parts.append(f"memory {size_text(int(each.peak_bytes.most))}")
    if each.tokens:
        parts.append(f"{each.tokens:,} tokens")
    if each.cost_micros:
        parts.append(money_text(each.cost_micros, estimated=False))
    return ", ".join(parts)


def _time(seconds: float) -> str:
    milliseconds = 1000 * seconds
    if milliseconds >= SHORT_MS:
        return duration(round(milliseconds))
    return f"{milliseconds:.0f} ms" if milliseconds >= 1 else f"{milliseconds:.1f} ms"


def _limits(each: Learned) -> str:
    words = {
        "cpu": "the CPU",
        "memory": "memory",
        "lock": "something that only one can have (a lock)",
        "quota": "something that serves only some at once (a quota)",
        "wait": "nothing here: they mostly wait",
    }
    if not each.bottleneck:
        return ""
    cpu = "" if each.cpu is None else f"; {100 * each.cpu:.0f} % of the time on a CPU"
    return f"limited by {words[each.bottleneck]}{cpu}"


def _said(each: Learned) -> str:
    if each.said is None:
        return ""
    notes = f": {each.said['notes']}" if each.said["notes"] else ""
    return one_line(f"{each.said['by']} said: benefit {each.said['benefit']:g}{notes}")


def _plot(gains: tuple[Gain, ...]) -> list[str]:
    """Throughput against workers: full up to what is nearly sure, light up to what may be."""
    scale = BAR / max(gain.throughput.high for gain in gains)
    lines = [f"workers  throughput{' ' * (BAR - 9)}with 90 %"]
    for gain in gains:
        low, mean, high = (
            round(scale * value)
            for value in (gain.throughput.low, gain.throughput.mean, gain.throughput.high)
        )
        bar = ("█" * low + "▒" * (high - low)).ljust(BAR)
        if low < high:
            mean = min(max(mean, low), high - 1)
            bar = bar[:mean] + "┃" + bar[mean + 1 :]
        across = f"{gain.throughput.low:.1f} to {gain.throughput.high:.1f}"
        lines.append(f"{gain.workers:>7}  {bar} {gain.throughput.mean:>4.1f} × ({across})")
    return lines


def _saved(saved: Range) -> str:
    return f"{saved.mean:.2f} ({saved.low:.2f} to {saved.high:.2f})"
