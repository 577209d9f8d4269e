"""Pre-flight: looks at the items and the store before a run, and changes nothing.

The survey goes item by item and keeps of each only a digest of its key, the files it
names, and, of task files, its id; examples are few. So it can ride on the first pass of
a run. What it then knows makes the run safe: `skips`, `exclusive_for` and `after_for`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from hypervisor.agents.preflight import AgentSurvey
from hypervisor.batches.preflight_findings import (
    CANCELLED,
    CLAIMED,
    DONE,
    TRIED_AGAIN,
    Estimate,
    Finding,
    Preflight,
    advice,
    assignee,
    chains,
    headline,
    order,
    standing,
)
from hypervisor.batches.sql import report
from hypervisor.core.errors import RequestError
from hypervisor.core.ids import key_digest
from hypervisor.inputs.items import task_for
from hypervisor.inputs.named_files import Conflict, NamedFiles, declared, is_readable, is_task_file
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask
from hypervisor.store import settings

EXAMPLES = 10
SLICE = 4_096
DIGEST = 16
MOST_UNKNOWN = 1_000  # names that are looked up in the store one by one
NOTHING = NewTask("")


class Intent(NamedTuple):
    """What is about to be run: the folder it runs in, as what, and with how many workers."""

    root: str = "."
    batch: str | None = None
    type: str = "run"
    workers: int | None = None
    requires: tuple[str, ...] = ()
    known: Collection[str] | None = None  # people and agents; None: anybody will do
    in_text: bool = False  # also look for files in the text of task files


def preflight(
    hv: Context,
    items: Iterable[Item],
    batch: str | None = None,
    type: str = "run",
    workers: int | None = None,
    *,
    requires: Collection[str] = (),
    root: str = ".",
) -> Preflight:
    """Look at items before they are run: done, claimed, missing, in conflict, in which order."""
    survey = Survey(Intent(root, batch, type, workers, tuple(requires)))
    for item in items:
        survey.add(item)
    return survey.result(hv)


class _Counts(NamedTuple):
    """How the items stand in the store."""

    states: dict[str, int]
    own_claims: frozenset[bytes]  # claimed according to their files, and the store knows them

    def of(self, *names: str) -> int:
        return sum(self.states.get(name, 0) for name in names)


class Survey:
    """Call `add` for every item, then `result`; the rest may be asked at any time after."""

    def __init__(self, intent: Intent, agents: AgentSurvey | None = None) -> None:
        self.intent = intent
        self.agents = agents
        self.items = 0
        self._files = NamedFiles(intent.root, intent.in_text)
        self._seen: set[bytes] = set()
        self._repeated: dict[bytes, int] = {}
        self._open = bytearray()  # digests of the keys of what the files leave open …
        self._claimed = bytearray()  # … and of what they call claimed
        self._own: frozenset[bytes] = frozenset()
        self._found: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._aliases: dict[str, str] = {}  # what items are called → their keys
        self._finished: set[str] = set()  # what finished items are called
        self._links: dict[str, tuple[str, ...]] = {}  # key → what it waits for
        self._outside: set[str] = set()  # names that the store knows
        self._circular: set[str] = set()
        self._requires: dict[str, int] = {}
        self._theirs: set[str] = set()  # keys of what others have claimed, as the files say

    def add(self, item: Item) -> None:
        """Take note of one item."""
        self.items += 1
        first = task_for(item, NOTHING).key or ""
        digest = key_digest(first)
        if digest in self._seen:
            self._note("duplicate", item.text)
            times = self._repeated[digest] = self._repeated.get(digest, 1) + 1
            digest = key_digest(task_for(item, NOTHING, times).key or "")
        self._seen.add(digest)
        stands = _standing(item)
        if stands in (DONE, CANCELLED):
            self._counts[stands] = self._counts.get(stands, 0) + 1
            self._finished.update(_called(item))
            return
        (self._claimed if stands == CLAIMED else self._open).extend(digest)
        self._look_at(item, first, stands)

    def result(self, hv: Context | None) -> Preflight:
        """What was found; without a store there is nothing that was done before."""
        counts = self._ask(hv)
        self._own = counts.own_claims
        self._find_strangers(hv)
        linked, steps = self._find_circles()
        conflicts, sharing = self._files.conflicts()
        claimed = len(self._claimed) // DIGEST - len(counts.own_claims)
        known = sum(counts.states.values())
        new = (len(self._open) + len(self._claimed)) // DIGEST - claimed - known
        to_do = new + known - counts.of(DONE)
        cost = self._estimate(hv, to_do)
        strategy, said = advice(to_do, linked, steps, len(conflicts) == 1 and sharing >= to_do > 1)
        found = Preflight(
            "",
            True,
            self.items,
            to_do,
            new,
            counts.of(*TRIED_AGAIN),
            known - counts.of(DONE, *TRIED_AGAIN),
            self._counts.get(DONE, 0) + counts.of(DONE),
            self._counts.get(CANCELLED, 0),
            claimed,
            len(conflicts),
            linked,
            steps,
            said,
            strategy,
            (),
            tuple(self._findings(hv, counts, cost, to_do, conflicts)),
            cost,
        )
        more = self.agents.order() if self.agents else ()
        found = found._replace(order=(*order(found, sharing), *more))
        clear = not any(each.in_the_way for each in found.findings)
        return found._replace(headline=headline(found), clear=clear)

    def skips(self, item: Item) -> str:
        """Why the item's own file says that it is not to be run; "" if it is."""
        stands = _standing(item)
        if stands == CLAIMED and key_digest(task_for(item, NOTHING).key or "") in self._own:
            return ""  # by our own earlier run, which is being taken up again
        return stands

    def links(self) -> Iterator[tuple[str, str]]:
        """Which item waits for which, by their keys."""
        for key, needs in self._links.items():
            yield from ((key, self._aliases[name]) for name in needs if name in self._aliases)

    def exclusive_for(self, item: Item) -> tuple[str, ...]:
        """Keys for the files that this item shares with others; most items have none."""
        return self._files.keys_for(item)

    def after_for(self, item: Item) -> tuple[str, ...]:
        """The keys or ids of the tasks that this item waits for, as far as there are any."""
        names = declared(item, "depends_on")
        if not names:
            return ()
        own = task_for(item, NOTHING).key or ""
        found = [self._aliases.get(name) or self._stored(name) for name in map(_clean, names)]
        apart = own not in self._circular
        return tuple(
            key
            for key in dict.fromkeys(found)
            if key
            and key != own
            and (apart or key not in self._circular)
            and not self._is_left_alone(key)
        )

    def _is_left_alone(self, key: str) -> bool:
        """Somebody else is at it: it is not part of the run, so nothing can wait for it here."""
        return key in self._theirs and key_digest(key) not in self._own

    def _look_at(self, item: Item, key: str, stands: str) -> None:
        if not is_readable(item):
            self._note("unreadable", item.text)
        if item.columns is None:
            return
        who = assignee(item.columns) if is_task_file(item) else ""
        if stands == CLAIMED:
            self._theirs.add(key)
            self._note("claimed", f"{item.text} ({who})")
        self._files.add(item)
        if is_task_file(item) or isinstance((item.columns or {}).get("depends_on"), list):
            for name in _called(item):
                self._aliases.setdefault(name, key)
            if needs := tuple(map(_clean, declared(item, "depends_on"))):
                self._links[key] = needs
        for name in set(declared(item, "requires")).difference(self.intent.requires):
            self._requires[name] = self._requires.get(name, 0) + 1
        if who and self.intent.known is not None and who not in self.intent.known:
            self._note("assignee", f"{who} ({item.text})")

    def _note(self, kind: str, example: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        found = self._found.setdefault(kind, [])
        if len(found) < EXAMPLES:
            found.append(example[:200])

    def _ask(self, hv: Context | None) -> _Counts:
        """How many of the items are in which state; those that the store does not know are in
        none."""
        batch = _batch_id(hv, self.intent.batch)
        if hv is None or batch is None:
            return _Counts({}, frozenset())
        states: dict[str, int] = {}
        own: set[bytes] = set()
        for digests, claimed in ((self._open, False), (self._claimed, True)):
            for some in _slices(digests):
                found = hv.store.read(report.states_of_keys, batch, some)
                for state in found.values():
                    states[state] = states.get(state, 0) + 1
                if claimed:
                    own.update(bytes.fromhex(digest) for digest in found)
        return _Counts(states, frozenset(own))

    def _find_strangers(self, hv: Context | None) -> None:
        """Dependencies that neither an item nor a task of the store is called."""
        asked = 0
        for key, needs in self._links.items():
            for name in needs:
                if name in self._aliases or name in self._finished or name in self._outside:
                    continue
                asked += 1
                if hv is not None and asked <= MOST_UNKNOWN and _is_task(hv, name):
                    self._outside.add(name)
                else:
                    self._note("unknown", f"{name} ({_short(key)})")

    def _find_circles(self) -> tuple[int, int]:
        """How many items wait for others, and how long the longest chain is."""
        graph = {
            key: {self._aliases[name] for name in needs if name in self._aliases} - {key}
            for key, needs in self._links.items()
        }
        graph = {key: needs for key, needs in graph.items() if needs}
        whole = {**{need: set() for needs in graph.values() for need in needs}, **graph}
        steps, cycles = chains(whole)
        for cycle in cycles:
            self._circular.update(cycle)
            self._note("cycle", " → ".join(_short(key) for key in (*cycle, cycle[0])))
        return len(graph), steps

    def _stored(self, name: str) -> str:
        return name if name in self._outside else ""

    def _estimate(self, hv: Context | None, to_do: int) -> Estimate:
        asked = self.intent.workers or (hv.settings.workers if hv else None) or _cores()
        workers = max(1, min(asked, to_do))
        if hv is None:
            return Estimate(workers)
        peak = hv.store.read(settings.setting, f"peak {self.intent.type}")
        before = hv.store.read(
            report.experience, self.intent.type, _batch_id(hv, self.intent.batch)
        )
        took, output = before.milliseconds, before.output
        if output is not None:
            output = min(output, hv.settings.keep_each) * to_do
        return Estimate(
            workers,
            int(peak) if peak else None,
            _memory(),
            output,
            hv.outputs.free(),
            None if took is None or not to_do else took * -(-to_do // workers),
            self.agents.cost(hv, to_do) if self.agents else None,
        )

    def _findings(
        self,
        hv: Context | None,
        counts: _Counts,
        cost: Estimate,
        to_do: int,
        conflicts: list[Conflict],
    ) -> Iterator[Finding]:
        """What stands in the way first."""
        for kind, in_the_way, one, several in KINDS:
            if count := self._counts.get(kind, 0):
                said = one if count == 1 else f"{count:,} {several}"
                yield Finding(kind, count, said, tuple(self._found[kind]), in_the_way)
        yield from self.agents.findings(hv, to_do) if self.agents else self._lacking(hv)
        yield from _too_much(cost)
        if count := len(conflicts) if to_do > 1 else 0:
            told = tuple(_conflict(*each) for each in conflicts[:EXAMPLES])
            several = "is" if count == 1 else "are"
            said = f"{count:,} {several} named by several items, which run one after the other"
            yield Finding("overlap", count, said, told)
        if count := len(self._files.absent):
            exist = "does" if count == 1 else "do"
            said = f"{count:,} of the files that items name {exist} not exist yet"
            few = tuple(sorted(self._files.absent)[:EXAMPLES])
            yield Finding("absent", count, said, few)
        if count := counts.of("in_progress"):
            yield Finding("running", count, f"{count:,} being worked on right now")
        if count := counts.of(*TRIED_AGAIN):
            yield Finding("again", count, f"{count:,} to be tried again after failing")

    def _lacking(self, hv: Context | None) -> Iterator[Finding]:
        have = set(hv.settings.capabilities) if hv else set()
        required = {**dict.fromkeys(self.intent.requires, self.items), **self._requires}
        lacking = {name: n for name, n in required.items() if name not in have}
        if lacking:
            told = tuple(f"{name} ({count:,} items)" for name, count in lacking.items())
            said = "config.toml of this host does not list what items require"
            yield Finding("capability", len(lacking), said, told[:EXAMPLES], True)


KINDS = (  # kind, whether it stands in the way, one of them, several
    (
        "unreadable",
        True,
        "1 file is missing or cannot be read",
        "files are missing or cannot be read",
    ),
    (
        "unknown",
        True,
        "1 dependency is on nothing that is known",
        "dependencies are on nothing that is known",
    ),
    (
        "cycle",
        True,
        "1 circle of items that wait for each other",
        "circles of items that wait for each other",
    ),
    ("assignee", True, "1 is assigned to somebody unknown", "are assigned to somebody unknown"),
    (
        "claimed",
        False,
        "1 is claimed by somebody, as its file says, and left alone",
        "are claimed by somebody, as their files say, and left alone",
    ),
    (
        "duplicate",
        False,
        "1 is given more than once, and run as often",
        "are given more than once, and run as often",
    ),
)


def _too_much(cost: Estimate) -> Iterator[Finding]:
    if cost.output_all and cost.disk_free is not None and cost.output_all > cost.disk_free:
        yield Finding("disk", 1, "the outputs will not fit on the disk", (), True)
    if cost.memory_each and cost.memory_host and cost.memory_each > cost.memory_host:
        yield Finding("memory", 1, "one attempt needs more memory than this host has", (), True)


def _conflict(name: str, count: int, who: tuple[str, ...]) -> str:
    more = ", …" if count > len(who) else ""
    return f"{name}: {count:,} items ({', '.join(who)}{more})"


def _slices(digests: bytearray) -> Iterator[list[str]]:
    step = SLICE * DIGEST
    for start in range(0, len(digests), step):
        part = digests[start : start + step].hex()
        yield [part[at : at + 2 * DIGEST] for at in range(0, len(part), 2 * DIGEST)]


def _batch_id(hv: Context | None, name: str | None) -> str | None:
    if hv is None or name is None:
        return None
    try:
        return hv.store.read(queries.batch, name).id
    except RequestError:  # there will be one
        return None


def _is_task(hv: Context, name: str) -> bool:
    try:
        return bool(hv.resolve(name))
    except RequestError:
        return False


def _standing(item: Item) -> str:
    return standing(item.columns) if item.columns and is_task_file(item) else ""


def _called(item: Item) -> Iterator[str]:
    """What other items may call this one: its id, its path, its file's name."""
    columns = item.columns or {}
    if isinstance(columns.get("id"), (str, int)):
        yield str(columns["id"])
    if is_task_file(item):
        yield item.text
        base = os.path.basename(item.text)
        yield base
        yield os.path.splitext(base)[0]


def _clean(name: str) -> str:
    """Links may be written as [[name]] or [[name|shown]]."""
    if name.startswith("[[") and name.endswith("]]"):
        return name[2:-2].partition("|")[0].strip()
    return name


def _short(key: str) -> str:
    return key.rpartition(" #")[0] or key


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
