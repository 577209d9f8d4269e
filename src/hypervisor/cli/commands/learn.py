"""hv learn"""

import argparse

from hypervisor.cli.output import duration, one_line, respond
from hypervisor.cli.render import cost_text
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.learning.learn import Gain, Learned, learn_parallelization, learnings
from hypervisor.learning.posterior import Range
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text

EXAMPLE = """hv learn
  hv learn codebase_search --workers 4
  hv learn codebase_search --benefit 0.6 --notes 'saves 60 % of the time'"""
BAR = 40
SHORT_MS = 100  # below this, seconds would be shown as 0.0 or 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", nargs="?", metavar="TYPE", help="only this type of task")
    parser.add_argument(
        "--workers",
        type=int,
        default=8,
        metavar="N",
        help="consider at most N workers (default 8)",
    )
    parser.add_argument(
        "--benefit",
        type=float,
        metavar="SHARE",
        help="record the share of time that running in parallel saves, e.g. 0.6",
    )
    parser.add_argument("--notes", default="", metavar="TEXT", help="reason for --benefit")


def prepare(args: argparse.Namespace) -> None:
    if args.benefit is not None and not args.type:
        raise InvalidInput("no type given: hv learn TYPE --benefit SHARE")
    if args.notes and args.benefit is None:
        raise InvalidInput("--notes needs --benefit SHARE.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.benefit is not None:
        learn_parallelization(hv, args.type, args.benefit, args.notes)
    known = learnings(hv, args.type, args.workers)
    text = "\n\n".join("\n".join(_lines(learned)) for learned in known)
    return respond(args, known, text or "nothing learned yet; every `hv run` adds samples")


def _lines(learned: Learned) -> list[str]:
    details = (_usual(learned), _limits(learned), _reported(learned))
    lines = [
        f"{one_line(learned.name)}: {_basis(learned)}",
        *(f"  {line}" for line in details if line),
    ]
    if learned.samples or learned.stated:
        lines += [f"  {line}" for line in _plot(learned.gains)]
        lines.append(f"  parallel benefit {_saved(learned.parallel_benefit)}")
    workers = pluralize(learned.next.workers, "worker")
    lines.append(f"  next time: {workers}: {one_line(learned.next.why)}")
    return lines


def _basis(learned: Learned) -> str:
    if learned.success is None:
        return "no samples yet"
    changed = f", changed {pluralize(learned.changes, 'time')}" if learned.changes else ""
    return (
        f"{pluralize(learned.samples, 'sample')}, {100 * learned.success:.0f} % successful{changed}"
    )


def _usual(learned: Learned) -> str:
    """What an attempt usually takes: the median, and what nine of ten stay below."""
    parts = []
    if learned.seconds is not None:
        usual, most = (_time(value) for value in learned.seconds)
        parts.append(f"takes {usual} (90 % within {most})")
    if learned.peak_bytes is not None:
        parts.append(f"memory {size_text(int(learned.peak_bytes.most))}")
    if learned.tokens:
        parts.append(f"{learned.tokens:,} tokens")
    if learned.cost_micros:
        parts.append(cost_text(learned.cost_micros, estimated=False))
    return ", ".join(parts)


def _time(seconds: float) -> str:
    milliseconds = 1000 * seconds
    if milliseconds >= SHORT_MS:
        return duration(round(milliseconds))
    return f"{milliseconds:.0f} ms" if milliseconds >= 1 else f"{milliseconds:.1f} ms"


def _limits(learned: Learned) -> str:
    bottlenecks = {
        "cpu": "the CPU",
        "memory": "memory",
        "lock": "a lock: something only one attempt can hold",
        "quota": "a quota: something that serves only a few at a time",
        "wait": "nothing on this host: attempts mostly wait",
    }
    if not learned.bottleneck:
        return ""
    cpu = "" if learned.cpu is None else f"; {100 * learned.cpu:.0f} % of the time on a CPU"
    return f"limited by {bottlenecks[learned.bottleneck]}{cpu}"


def _reported(learned: Learned) -> str:
    if learned.stated is None:
        return ""
    notes = f": {learned.stated['notes']}" if learned.stated["notes"] else ""
    return one_line(
        f"benefit according to {learned.stated['by']}: {learned.stated['benefit']:g}{notes}"
    )


def _plot(gains: tuple[Gain, ...]) -> list[str]:
    """Throughput by number of workers: the bar is full up to the low estimate, light up to the
    high one."""
    scale = BAR / max(gain.throughput.high for gain in gains)
    lines = [f"workers  throughput{' ' * (BAR - 9)}90 % interval"]
    for gain in gains:
        low, mean, high = (
            round(scale * value)
            for value in (gain.throughput.low, gain.throughput.mean, gain.throughput.high)
        )
        bar = ("█" * low + "▒" * (high - low)).ljust(BAR)
        if low < high:
            mean = min(max(mean, low), high - 1)
            bar = bar[:mean] + "┃" + bar[mean + 1 :]
        interval = f"{gain.throughput.low:.1f} to {gain.throughput.high:.1f}"
        lines.append(f"{gain.workers:>7}  {bar} {gain.throughput.mean:>4.1f} × ({interval})")
    return lines


def _saved(saved: Range) -> str:
    return f"{saved.mean:.2f} ({saved.low:.2f} to {saved.high:.2f})"
