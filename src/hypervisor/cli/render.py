"""The picture of running work, as lines for a terminal of a given size.

Nothing here touches the terminal. Task text is data: it is made safe before it
becomes part of a line, and every line is cut to fit.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hypervisor.agents.cooldown import Cooldown, outage_text
from hypervisor.agents.session import Spent
from hypervisor.cli.output import cut, one_line, painted, width
from hypervisor.cli.progress import Counts
from hypervisor.core.text import amount_text
from hypervisor.resources.limits import UNITS
from hypervisor.runs.spec import BATCH, TYPE, Pause
from hypervisor.runs.status import Attempting, Status

GREEN, RED, YELLOW, BLUE, DIM, BOLD, LOUD = "32", "31", "33", "34", "90", "1", "97;41"
ZONES = {"safe": GREEN, "warning": YELLOW, "danger": RED, "emergency": LOUD}
WIDE = 110
LONGEST_BAR = 60
SHORTEST_BAR = 20
AGE, MEMORY, ID = 6, 6, 12
IDLE_MS = 3_000

Span = tuple[str, str]  # text and its colour


class Glyphs(NamedTuple):
    full: str
    half: str
    rest: str
    dot: str
    bad: str
    good: str
    call: str


PRETTY = Glyphs("━", "╸", "─", " · ", "✗", "✓", "▸")
PLAIN = Glyphs("#", "-", "-", ", ", "x", "*", ">")


class Frame(NamedTuple):
    """What there is to see at a moment."""

    status: Status
    counts: Counts
    now: int
    since: int | None = None  # None: no clock is shown
    per_second: float | None = None
    left: int | None = None
    interrupts: int = 0
    idle_since: int | None = None
    batches: Mapping[str, str] = MappingProxyType({})
    stages: tuple[Span, ...] = ()  # of a whole with several parts, how far each is

    @property
    def names(self) -> Mapping[str, str]:
        """The names of batches by their ids."""
        batch = self.status.batch
        return self.batches if batch is None else {batch.id: batch.name}

    @property
    def goes_on(self) -> bool:
        return not self.interrupts and not self.status.pauses


class Rows(NamedTuple):
    """The running attempts, each where it was before; None is an empty place."""

    attempts: tuple[Attempting | None, ...]
    title_width: int


def glyphs() -> Glyphs:
    return PRETTY if "utf" in (sys.stdout.encoding or "").lower() else PLAIN


def picture(scene: Frame, rows: Rows, columns: int, height: int) -> list[list[Span]]:
    """Lines of spans, at most `height` of them, each shorter than `columns`."""
    head: list[list[Span]] = [[], *progress(scene, columns - 1), *stages(scene), *hints(scene)]
    head += [*money_lines(scene.status), host_line(scene.status)]
    room = height - len(head) - 1
    below = _attempts(rows, scene.now, columns - 1, room) if room > 0 else []
    return [fit(line, columns - 1) for line in [*head, *below][: max(height, 1)]]


def progress(scene: Frame, columns: int) -> list[list[Span]]:
    """The bar with its figures: on one line if there is room, else on two."""
    total, ended = scene.counts.total, scene.counts.ended
    share = f"{100 * ended // total} %" if total else "100 %"
    numbers: list[Span] = [(f"  {ended:,}/{total:,}", BOLD), (f"  {share}", "")]
    if scene.left is not None and scene.goes_on and ended < total:
        numbers.append((f"  {clock(scene.left)} left", ""))
    told = figures(scene, bar=True)
    room = columns - _length(numbers) - 2
    if columns >= WIDE and room - _length(told) >= SHORTEST_BAR:
        bar = _bar(scene.counts, min(room - _length(told), LONGEST_BAR))
        return [[*bar, *numbers, ("  ", ""), *told]]
    if room + 2 < SHORTEST_BAR // 2:
        return [numbers, told]
    return [[*_bar(scene.counts, min(room + 2, LONGEST_BAR)), *numbers], told]


def stages(scene: Frame) -> list[list[Span]]:
    """How far each part of a whole is."""
    return [joined(scene.stages)] if scene.stages else []


def figures(scene: Frame, bar: bool = False) -> list[Span]:
    """Counts, rate and time, the more important first. A bar beside them tells what is left."""
    counts = scene.counts
    left = 0 if bar else counts.open - counts.running - counts.waiting
    parts: list[Span] = [
        (f"{counts.done:,} done", GREEN),
        (f"{counts.failed:,} failed" if counts.failed else "", RED),
        (f"{counts.cancelled:,} cancelled" if counts.cancelled else "", YELLOW),
        (f"{counts.held:,} held up" if counts.held else "", YELLOW),
        (f"{counts.running:,} running" if counts.running else "", BLUE),
        (f"{counts.waiting:,} waiting" if counts.waiting else "", ""),
        (f"{left:,} to do" if left > 0 else "", ""),
        (rate(scene.per_second), ""),
        ("" if scene.since is None else clock(scene.now - scene.since), DIM),
        (f"{counts.skipped:,} skipped" if counts.skipped else "", DIM),
    ]
    return joined(parts)


def _bar(counts: Counts, columns: int) -> list[Span]:
    full, half, rest, *_ = glyphs()
    halves = 2 * columns * counts.ended // counts.total if counts.total else 2 * columns
    cells = halves // 2
    bad = counts.ended - counts.done
    red = min(max(columns * bad // (counts.total or 1), 1), cells) if bad else 0
    tip = half if halves % 2 else ""
    return [
        (full * (cells - red), GREEN),
        (full * red, RED),
        (tip, RED if red else GREEN),
        (rest * (columns - cells - len(tip)), DIM),
    ]


def hints(scene: Frame) -> list[list[Span]]:
    """What a person should know now: that it winds up, that it is paused, that nothing moves."""
    status, counts = scene.status, scene.counts
    if scene.interrupts:
        return [[(_winding_up(scene.interrupts, status.stats.claimed), YELLOW)]]
    if status.trouble:
        return [[(one_line(status.trouble), RED)]]
    if status.pauses:
        return [[(pause_text(each, scene.names), YELLOW)] for each in status.pauses]
    if status.brakes:
        return [[(brake_text(each, scene.now), YELLOW)] for each in status.brakes]
    if status.checkpoint is not None and status.batch is not None:
        name = shlex.quote(status.batch.name)
        waits = f"{one_line(status.checkpoint.label)} waits for a decision: hv review {name}"
        return [[(waits, YELLOW)]]
    if scene.idle_since is not None and scene.now - scene.idle_since > IDLE_MS:
        return [[(_why_idle(status, counts), YELLOW)]]
    return []


def _why_idle(status: Status, counts: Counts) -> str:
    if counts.waiting == counts.open:
        return "nothing runs: all that is left waits for its time or for others"
    if not (status.host or {}).get("target"):  # with nothing to do the supervisor may have left
        return "nothing runs: what is left requires what no worker here offers"
    return "nothing runs yet, though there is something to do"


def _winding_up(interrupts: int, running: int) -> str:
    if not running:
        return "nothing runs any more"
    if interrupts == 1:
        still = "1 still runs" if running == 1 else f"{running:,} still run"
        return f"draining: {still}; Ctrl-C again stops {'it' if running == 1 else 'them'}"
    return f"stopping {running:,}; their tasks go back into the queue; Ctrl-C again does not wait"


def pause_text(pause: Pause, names: Mapping[str, str]) -> str:
    """What is paused, why, and what would end it; `names` of batches by their ids."""
    if pause.scope == BATCH:
        what = how = names.get(pause.name, pause.name)
    elif pause.scope == TYPE:
        what, how = f"type {pause.name}", f"--type {pause.name}"
    else:
        what, how = "everything", "--all"
    why = f" ({pause.reason})" if pause.reason else ""
    return one_line(f"paused: {what}{why}; `hv resume {how}` goes on")


def brake_text(brake: Cooldown, now: int) -> str:
    """Which account is not asked for now, until when and why."""
    if brake.is_outage:
        return one_line(outage_text(brake, now))
    until = time.strftime("%H:%M:%S", time.localtime(brake.until / 1000))
    why = f": {brake.reason}" if brake.reason else ""
    return one_line(f"{brake.account} rests until {until}{why}")


def money_lines(status: Status) -> list[list[Span]]:
    """What agents have cost so far, and how far budgets are used up."""
    if status.money is None or not (status.money.spent.tokens or status.money.used):
        return []
    spent, when = status.money.spent, " today" if status.batch is None else ""
    if any(used.endswith("budget)") for used in status.money.used):
        spent = spent._replace(cost_micros=0)  # the budget's own figures tell it
    parts: list[Span] = [(text + when, "") if (text := spent_text(spent)) else ("", "")]
    return [joined([*parts, *((used, "") for used in status.money.used)])]


def host_line(status: Status) -> list[Span]:
    if status.supervisor is None or status.host is None:
        return [("no supervisor runs", DIM)] if status.supervisor is None else [("…", DIM)]
    host: dict[str, Any] = status.host
    zone = "disk full" if status.trouble else str(host.get("zone", ""))
    said = "" if status.trouble else one_line(str(host.get("said", "")))
    if said.endswith(f"({zone})"):  # the figures stand before it already
        said = said.partition(":")[0]
    return joined(
        [
            (zone, RED if status.trouble else ZONES.get(zone, "")),
            (f"CPU {percent(host.get('cpu'))}", ""),
            (f"RAM {percent(host.get('ram'))}", ""),
            (said, DIM),
        ]
    )


def _attempts(rows: Rows, now: int, columns: int, room: int) -> list[list[Span]]:
    shown = rows.attempts
    if len(shown) > room:
        there = sorted((a for a in shown if a), key=lambda a: (a.since, a.task))
        shown = tuple(there[:room] if len(there) <= room else there[: max(room - 1, 0)])
        more = len(there) - len(shown)
    else:
        more = 0
    lines = [attempt_line(each, now, columns, rows.title_width) for each in shown]
    return [*lines, [(f"{'':>{AGE}}  and {more:,} more", DIM)]] if more else lines


def attempt_line(each: Attempting | None, now: int, columns: int, title_width: int) -> list[Span]:
    """Age, memory, title and the last line of output; the id too where there is room."""
    if each is None:
        return [("", "")]
    memory = "" if each.memory is None else memory_text(each.memory)
    left = [(f"{clock(now - each.since):>{AGE}}", BLUE), (f"  {memory:>{MEMORY}}  ", "")]
    if columns >= WIDE:
        left.append((f"{each.task:<{ID}}  ", DIM))
    room = columns - _length(left)
    titles = min(title_width, max(room * 45 // 100, 12))
    title = cut(one_line(each.title), titles)
    return [
        *left,
        (title + " " * (titles - width(title)), ""),
        ("  ", ""),
        (one_line(doing_text(each)), DIM),
    ]


def doing_text(each: Attempting) -> str:
    """What an attempt does: its last line; of an agent also which it is and its cost so far."""
    if not each.agent:
        return each.last_line
    cost = money_text(each.cost_micros, each.estimated) if each.cost_micros else ""
    figures = " ".join(part for part in (each.agent, tokens_text(each.tokens), cost) if part)
    return f"{figures} {glyphs().call} {each.last_line}" if each.last_line else figures


# Words for amounts


def spent_text(spent: Spent) -> str:
    """Tokens and money, and what is not known of it."""
    parts = [
        f"{tokens_text(spent.tokens)} tokens" if spent.tokens else "",
        money_text(spent.cost_micros, spent.estimated) if spent.cost_micros else "",
        f"{spent.unpriced} not priced" if spent.unpriced else "",
    ]
    return glyphs().dot.join(part for part in parts if part)


def money_text(micros: int, estimated: bool) -> str:
    """`0.30`; `≈0.30` where a table of prices says so and not the provider."""
    about = ("≈" if glyphs() is PRETTY else "~") if estimated else ""
    return about + amount_text(micros)


def tokens_text(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count) if count else ""
    amount, unit = (count / 1e3, "k") if count < 999_500 else (count / 1e6, "M")
    return f"{amount:.1f}{unit}" if amount < 99.5 else f"{amount:.0f}{unit}"


def clock(ms: int) -> str:
    """`0:07`, `12:40`, `3:05:00`."""
    seconds = max(ms, 0) // 1000
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return ""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        amount = per_second * factor
        if amount >= 1 or unit == "h":
            return f"{amount:,.0f}/{unit}" if amount >= 20 else f"{amount:.1f}/{unit}"
    raise AssertionError


def memory_text(size: int) -> str:
    """Roughly, and never wider than six columns: `0.3 MB`, `64 MB`, `1.2 GB`."""
    amount, unit = size / (1 << 20), UNITS.index("MB")
    while amount >= 999.5 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {UNITS[unit]}" if amount < 9.95 else f"{amount:.0f} {UNITS[unit]}"


def percent(share: Any) -> str:
    return f"{100 * share:.0f} %" if isinstance(share, (int, float)) else "?"


# Lines


def fit(line: Sequence[Span], columns: int) -> list[Span]:
    """The line, cut where the terminal ends."""
    fitting: list[Span] = []
    for text, code in line:
        if columns <= 0:
            break
        kept = cut(text, columns)
        fitting.append((kept, code))
        columns -= width(kept)
    return fitting


def render(line: Sequence[Span], colours: bool) -> str:
    parts = [painted(text, code) if code and colours else text for text, code in line if text]
    return "".join(parts) if colours else "".join(parts).rstrip()


def joined(parts: Sequence[Span]) -> list[Span]:
    dot = (glyphs().dot, DIM)
    spans = [span for part in parts if part[0] for span in (dot, part)]
    return spans[1:]


def _length(line: Sequence[Span]) -> int:
    return sum(width(text) for text, _ in line)
