"""How running work is described: lines of styled text made from a snapshot.

Nothing here touches the terminal. Task text is data: it is made safe before it
becomes part of a line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypervisor.batches.pipeline_names import reduce_name
from hypervisor.cli.output import (
    BLUE,
    BOLD,
    DIM,
    GREEN,
    PRETTY,
    RED,
    YELLOW,
    Line,
    Span,
    glyphs,
    joined,
    length,
    one_line,
)
from hypervisor.core.text import money_text, pluralize
from hypervisor.monitoring.progress import Counts, count
from hypervisor.monitoring.snapshot import Snapshot
from hypervisor.monitoring.status import CurrentAttempt, Question, Status
from hypervisor.monitoring.waiting import waiting_text
from hypervisor.queue.agent_session import Spent
from hypervisor.queue.lifecycle import MERGING
from hypervisor.queue.message import NEEDS_INPUT
from hypervisor.queue.pause import BATCH, TYPE, Pause
from hypervisor.resources.limits import UNITS

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown

ZONES = {"safe": GREEN, "warning": YELLOW, "danger": RED, "emergency": "reverse red"}
WIDE = 110
MAX_BAR_WIDTH = 60
MIN_BAR_WIDTH = 20
IDLE_MS = 3_000
MAX_QUESTIONS = 5


def progress(snapshot: Snapshot, columns: int) -> list[Line]:
    """The bar with its figures: on one line if there is room, else on two."""
    total, ended = snapshot.counts.total, snapshot.counts.ended
    share = f"{100 * ended // total} %" if total else "100 %"
    numbers: Line = [(f"  {ended:,}/{total:,}", BOLD), (f"  {share}", "")]
    if snapshot.left is not None and snapshot.continues and ended < total:
        numbers.append((f"  {clock(snapshot.left)} left", ""))
    details = figures(snapshot, bar=True)
    room = columns - length(numbers)
    beside = room - length(details) - 2
    if columns >= WIDE and beside >= MIN_BAR_WIDTH:
        return [[*_bar(snapshot.counts, beside), *numbers, ("  ", ""), *details]]
    return [[*_bar(snapshot.counts, room), *numbers], details]


def stage_progress(snapshot: Snapshot) -> list[Line]:
    """The progress of each part of a pipeline."""
    if len(snapshot.parts) < 2:
        return []
    first, parts = snapshot.parts[0].batch, []
    for number, status in enumerate(snapshot.parts, 1):
        counts = count(status.stats.states, status.attempts)
        style = RED if counts.failed else GREEN if not counts.open else ""
        if first and status.batch and status.batch.name == reduce_name(first.name):
            state = "running" if counts.running else "waiting" if counts.open else "ended"
            parts.append((f"reduce {state}", style))
        else:
            parts.append((f"stage {number} {counts.ended:,}/{counts.total:,}", style))
    return [joined(parts)]


def figures(snapshot: Snapshot, bar: bool = False) -> Line:
    """Counts, rate and time, the more important first. Next to a bar, ready tasks are omitted."""
    counts = snapshot.counts
    ready = 0 if bar else counts.open - counts.running - counts.waiting - counts.merging
    amounts = (
        (counts.failed, "failed", RED),
        (counts.cancelled, "cancelled", YELLOW),
        (counts.blocked, "blocked", YELLOW),
        (counts.review, "in review", YELLOW),
        (counts.inbox, "inbox", YELLOW),
        (counts.running, "running", BLUE),
        (counts.merging, "merging", ""),
        (counts.waiting, "waiting", ""),
        (ready, "ready", ""),
    )
    elapsed = "" if snapshot.since is None else clock(snapshot.now - snapshot.since)
    return joined(
        [
            (f"{counts.done:,} done", GREEN),
            *((f"{amount:,} {state}", style) for amount, state, style in amounts if amount > 0),
            (rate(snapshot.per_second), ""),
            (elapsed, DIM),
            (f"{counts.skipped:,} skipped" if counts.skipped else "", DIM),
        ]
    )


def _bar(counts: Counts, room: int) -> Line:
    """A progress bar, with what did not succeed in red; rich's has no second color."""
    if room < MIN_BAR_WIDTH // 2:
        return []
    columns, (full, half, rest, *_) = min(room, MAX_BAR_WIDTH), glyphs()
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


def hints(snapshot: Snapshot) -> list[Line]:
    """Why the run is ending, paused or waiting."""
    status, now = snapshot.status, snapshot.now
    if snapshot.interrupts:
        return [[(_winding_up(snapshot.interrupts, status.stats.claimed), YELLOW)]]
    if status.trouble:
        return [[(one_line(status.trouble), RED)]]
    if status.pauses:
        return [[(pause_text(pause, snapshot.names), YELLOW)] for pause in status.pauses]
    if status.cooldowns:
        return [[(rate_limit_text(cooldown, now), YELLOW)] for cooldown in status.cooldowns]
    if status.checkpoint is not None and status.batch is not None:
        name = shlex.quote(status.batch.name)
        label = one_line(status.checkpoint.label)
        return [[(f"{label} is waiting for a decision: hv review {name}", YELLOW)]]
    text = waiting_line(snapshot)
    return [[(text, YELLOW)]] if text else []


def question_lines(questions: Sequence[Question]) -> list[Line]:
    """What blocked tasks ask, with the command that answers."""
    lines: list[Line] = [
        [
            (f"{NEEDS_INPUT} (hv answer {asked.task} 'TEXT'): ", YELLOW),
            (one_line(f"{asked.title}: {asked.question}"), ""),
        ]
        for asked in questions[:MAX_QUESTIONS]
    ]
    more = len(questions) - MAX_QUESTIONS
    return [*lines, [(f"and {more} more: hv ls --state blocked", DIM)]] if more > 0 else lines


def waiting_line(snapshot: Snapshot) -> str:
    """Why nothing starts; "" if tasks start, or may start in a moment."""
    waiting, idle_since = snapshot.status.waiting, snapshot.idle_since
    has_idled = idle_since is not None and snapshot.now - idle_since > IDLE_MS
    if waiting is not None and (has_idled or waiting.kind not in ("requirements", "dependencies")):
        return one_line(waiting_text(waiting, snapshot.now))
    if has_idled and (merging := snapshot.status.stats.states[MERGING]):
        return f"waiting: {pluralize(merging, 'task')} being merged (hv queue)"
    return "waiting: nothing has been started yet" if has_idled else ""


def _winding_up(interrupts: int, running: int) -> str:
    if not running:
        return "nothing is running"
    if interrupts == 1:
        still = (
            "1 task is still running" if running == 1 else f"{running:,} tasks are still running"
        )
        return f"draining: {still}; Ctrl-C again stops {'it' if running == 1 else 'them'}"
    return (
        f"stopping {running:,}; their tasks go back into the queue; Ctrl-C again exits without "
        f"waiting"
    )


def pause_text(pause: Pause, names: Mapping[str, str]) -> str:
    """What is paused, why, and how to resume it; `names` of batches by their ids."""
    if pause.scope == BATCH:
        scope = argument = names.get(pause.name, pause.name)
    elif pause.scope == TYPE:
        scope, argument = f"type {pause.name}", f"--type {pause.name}"
    else:
        scope, argument = "everything", "--all"
    reason = f" ({pause.reason})" if pause.reason else ""
    return one_line(f"paused: {scope}{reason}; to continue: hv resume {argument}")


def rate_limit_text(cooldown: Cooldown, now: int) -> str:
    """Which account is rate-limited, until when and why."""
    from hypervisor.agents.cooldown import cooldown_text

    return one_line(cooldown_text(cooldown, now, None))


def money_lines(status: Status) -> list[Line]:
    """The cost of agents so far, and how much of each budget is used."""
    if status.money is None or not (status.money.spent.tokens or status.money.used):
        return []
    spent, when = status.money.spent, " today" if status.batch is None else ""
    if any(used.endswith("budget)") for used in status.money.used):
        spent = spent._replace(cost_micros=0)  # the budget's own figures have it
    text = spent_text(spent)
    return [joined([(text and text + when, ""), *((used, "") for used in status.money.used)])]


def host_line(status: Status) -> Line:
    if status.supervisor is None or status.host is None:
        nobody = "no supervisor is running" if status.stats.remaining else "nothing is running"
        return [(nobody if status.supervisor is None else "…", DIM)]
    host: dict[str, Any] = status.host
    zone = "disk full" if status.trouble else str(host.get("zone", ""))
    is_shown_above = status.trouble or (status.waiting and status.waiting.kind == "load")
    reason = "" if is_shown_above else one_line(str(host.get("message", "")))
    if reason.endswith(f"({zone})"):  # its figures are already shown
        reason = reason.partition(":")[0]
    return joined(
        [
            (zone, RED if status.trouble else ZONES.get(zone, "")),
            (f"CPU {percent(host.get('cpu'))}", ""),
            (f"RAM {percent(host.get('ram'))}", ""),
            (reason, DIM),
        ]
    )


def activity(attempt: CurrentAttempt) -> str:
    """The last line of an attempt; for an agent also its name and cost so far."""
    if not attempt.agent:
        return attempt.last_line
    cost = cost_text(attempt.cost_micros, attempt.estimated) if attempt.cost_micros else ""
    words = " ".join(filter(None, (attempt.agent, tokens_text(attempt.tokens), cost)))
    return f"{words} {glyphs().call} {attempt.last_line}" if attempt.last_line else words


# Words for amounts


def spent_text(spent: Spent) -> str:
    """Tokens and money, and how many sessions have no known price."""
    parts: list[Span] = [
        (f"{tokens_text(spent.tokens)} tokens" if spent.tokens else "", ""),
        (cost_text(spent.cost_micros, spent.estimated) if spent.cost_micros else "", ""),
        (f"{spent.unpriced} not priced" if spent.unpriced else "", ""),
    ]
    return "".join(text for text, _ in joined(parts))


def cost_text(micros: int, estimated: bool) -> str:
    """`0.30 USD`; `≈0.30 USD` if calculated from a price list."""
    about = ("≈" if glyphs() is PRETTY else "~") if estimated else ""
    return about + money_text(micros)


def tokens_text(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count) if count else ""
    amount, unit = (count / 1e3, "k") if count < 999_500 else (count / 1e6, "M")
    return f"{amount:.1f}{unit}" if amount < 99.5 else f"{amount:.0f}{unit}"


def clock(ms: int) -> str:
    """`0:07`, `12:40`, `3:05:00`."""
    minutes, seconds = divmod(max(ms, 0) // 1000, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return ""
    amount, unit = per_second, "s"
    if amount < 1:
        amount, unit = per_second * 60, "min"
    if amount < 1:
        amount, unit = per_second * 3600, "h"
    return f"{amount:,.0f}/{unit}" if amount >= 20 else f"{amount:.1f}/{unit}"


def memory_text(size: int | None) -> str:
    """Rounded, and at most six columns wide: `0.3 MB`, `64 MB`, `1.2 GB`."""
    if size is None:
        return ""
    amount, unit = size / (1 << 20), UNITS.index("MB")
    while amount >= 999.5 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {UNITS[unit]}" if amount < 9.95 else f"{amount:.0f} {UNITS[unit]}"


def percent(share: Any) -> str:
    return f"{100 * share:.0f} %" if isinstance(share, (int, float)) else "?"
