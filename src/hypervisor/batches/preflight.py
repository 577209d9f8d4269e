"""Pre-flight: looks at the items and the store before a run, and changes nothing.

The survey goes item by item and keeps of each only a digest of its key, the files it
names, and, of task files, its id; examples are few. So it can ride on the first pass of
a run. What it then knows makes the run safe: `skips`, `exclusive_for` and `after_for`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from hypervisor.batches.item_links import ItemLinks
from hypervisor.batches.preflight_findings import (
    CANCELLED,
    CLAIMED,
    DONE,
    KINDS,
    TRIED_AGAIN,
    Estimate,
    Finding,
    Preflight,
    advice,
    assignee,
    excess,
    headline,
    order,
    standing,
    survey_finding,
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


class AgentChecks(Protocol):
    """What only the room of agents knows about a run by agents."""

    def add(self, task: NewTask) -> None: ...
    def findings(self, hv: Context | None, to_do: int) -> Iterator[Finding]: ...
    def order(self) -> tuple[str, ...]: ...
    def cost(self, hv: Context | None, to_do: int) -> int | None: ...


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
    """Check items before running them: already done, claimed, missing or conflicting; the order."""
    survey = Survey(Intent(root, batch, type, workers, tuple(requires)))
    for item in items:
        survey.add(item)
    return survey.result(hv)


class Survey:
    """Call `add` for every item, then `result`; the rest may be asked at any time after."""

    def __init__(self, intent: Intent, agents: AgentChecks | None = None) -> None:
        self.intent = intent
        self.agents = agents
        self.items = 0
        self._files = NamedFiles(intent.root, intent.in_text)
        self._links = ItemLinks()
        self._seen: set[bytes] = set()
        self._repeated: dict[bytes, int] = {}
        self._open = bytearray()  # digests of the keys of what the files leave open …
        self._claimed = bytearray()  # … and of what they call claimed
        self._own_claims: frozenset[bytes] = frozenset()  # those that the store knows
        self._claimed_keys: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._requires: Counter[str] = Counter()

    def add(self, item: Item) -> None:
        """Take note of one item."""
        self.items += 1
        key = _key(item)
        digest = key_digest(key)
        if digest in self._seen:
            self._note("duplicate", item.text)
            times = self._repeated[digest] = self._repeated.get(digest, 1) + 1
            digest = key_digest(task_for(item, NOTHING, times).key or "")
        self._seen.add(digest)
        status = _status(item)
        if status in (DONE, CANCELLED):
            self._counts[status] += 1
            self._links.add_finished(item)
            return
        (self._claimed if status == CLAIMED else self._open).extend(digest)
        self._look_at(item, key, status)

    def result(self, hv: Context | None) -> Preflight:
        """What was found; without a store there is nothing that was done before."""
        states = self._stored_states(hv)
        for name in self._links.unknown(hv):
            self._note("unknown", name)
        linked, steps, cycles = self._links.chains()
        for cycle in cycles:
            self._note("cycle", cycle)
        conflicts, sharing = self._files.conflicts()
        claimed = len(self._claimed) // DIGEST - len(self._own_claims)
        known, done = states.total(), states[DONE]
        again = sum(states[state] for state in TRIED_AGAIN)
        new = (len(self._open) + len(self._claimed)) // DIGEST - claimed - known
        to_do = new + known - done
        estimate = self._estimate(hv, to_do)
        strategy, text = advice(to_do, linked, steps, len(conflicts) == 1 and sharing >= to_do > 1)
        findings = tuple(self._findings(hv, states, estimate, to_do, conflicts))
        found = Preflight(
            headline="",
            clear=not any(finding.in_the_way for finding in findings),
            items=self.items,
            to_do=to_do,
            new=new,
            tried_again=again,
            still_open=known - done - again,
            complete=self._counts[DONE] + done,
            called_off=self._counts[CANCELLED],
            claimed=claimed,
            conflicts=len(conflicts),
            linked=linked,
            steps=steps,
            advice=text,
            strategy=strategy,
            order=(),
            findings=findings,
            estimate=estimate,
        )
        agents = self.agents.order() if self.agents else ()
        return found._replace(order=(*order(found, sharing), *agents), headline=headline(found))

    def skips(self, item: Item) -> str:
        """Why the item's own file says that it is not to be run; "" if it is."""
        status = _status(item)
        if status == CLAIMED and key_digest(_key(item)) in self._own_claims:
            return ""  # by our own earlier run, which is being resumed
        return status

    def links(self) -> Iterator[tuple[str, str]]:
        """Which item waits for which, by their keys."""
        return self._links.pairs()

    def exclusive_for(self, item: Item) -> tuple[str, ...]:
        """Keys for the files that this item shares with others; most items have none."""
        return self._files.keys_for(item)

    def after_for(self, item: Item) -> tuple[str, ...]:
        """The keys or ids of the tasks that this item waits for, as far as there are any. What
        somebody else has claimed is not part of the run, so nothing can wait for it here."""
        needs = self._links.after(item, _key(item))
        return tuple(
            key
            for key in needs
            if key not in self._claimed_keys or key_digest(key) in self._own_claims
        )

    def _look_at(self, item: Item, key: str, status: str) -> None:
        if not is_readable(item):
            self._note("unreadable", item.text)
        if item.columns is None:
            return
        who = assignee(item.columns) if is_task_file(item) else ""
        if status == CLAIMED:
            self._claimed_keys.add(key)
            self._note("claimed", f"{item.text} ({who})")
        self._files.add(item)
        self._links.add(item, key)
        self._requires.update(set(declared(item, "requires")).difference(self.intent.requires))
        if who and self.intent.known is not None and who not in self.intent.known:
            self._note("assignee", f"{who} ({item.text})")

    def _note(self, kind: str, example: str) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(example[:200])

    def _stored_states(self, hv: Context | None) -> Counter[str]:
        """How many of the items that the store knows are in which state."""
        states: Counter[str] = Counter()
        batch = _batch_id(hv, self.intent.batch)
        if hv is None or batch is None:
            return states
        for some in _slices(self._open):
            states.update(hv.store.read(report.states_of_keys, batch, some).values())
        own: set[bytes] = set()
        for some in _slices(self._claimed):
            known = hv.store.read(report.states_of_keys, batch, some)
            states.update(known.values())
            own.update(map(bytes.fromhex, known))
        self._own_claims = frozenset(own)
        return states

    def _estimate(self, hv: Context | None, to_do: int) -> Estimate:
        asked = self.intent.workers or (hv.settings.workers if hv else None) or _cores()
        workers = max(1, min(asked, to_do))
        if hv is None:
            return Estimate(workers)
        peak = hv.store.read(settings.setting, f"peak {self.intent.type}")
        batch = _batch_id(hv, self.intent.batch)
        before = hv.store.read(report.experience, self.intent.type, batch)
        took, output = before.milliseconds, before.output
        return Estimate(
            workers,
            int(peak) if peak else None,
            _memory(),
            None if output is None else min(output, hv.settings.keep_each) * to_do,
            hv.outputs.free(),
            None if took is None or not to_do else took * -(-to_do // workers),
            self.agents.cost(hv, to_do) if self.agents else None,
        )

    def _findings(
        self,
        hv: Context | None,
        states: Counter[str],
        estimate: Estimate,
        to_do: int,
        conflicts: list[Conflict],
    ) -> Iterator[Finding]:
        """What stands in the way first."""
        for kind in KINDS:
            if count := self._counts[kind]:
                yield survey_finding(kind, count, self._examples[kind])
        yield from self.agents.findings(hv, to_do) if self.agents else self._lacking(hv)
        yield from excess(estimate)
        if count := len(conflicts) if to_do > 1 else 0:
            files = "file is" if count == 1 else "files are"
            text = f"{count:,} {files} named by several items, which run one after the other"
            examples = tuple(_conflict(*conflict) for conflict in conflicts[:EXAMPLES])
            yield Finding("overlap", count, text, examples)
        if count := len(self._files.absent):
            exist = "does" if count == 1 else "do"
            text = f"{count:,} of the files that items name {exist} not exist yet"
            yield Finding("absent", count, text, tuple(sorted(self._files.absent)[:EXAMPLES]))
        if count := states["in_progress"]:
            yield Finding("running", count, f"{count:,} running now")
        if count := sum(states[state] for state in TRIED_AGAIN):
            yield Finding("again", count, f"{count:,} to be retried after failing")

    def _lacking(self, hv: Context | None) -> Iterator[Finding]:
        have = set(hv.settings.capabilities) if hv else set()
        required = {**dict.fromkeys(self.intent.requires, self.items), **self._requires}
        lacking = [f"{name} ({n:,} items)" for name, n in required.items() if name not in have]
        if lacking:
            text = "config.toml of this host does not list what items require"
            yield Finding("capability", len(lacking), text, tuple(lacking[:EXAMPLES]), True)


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


def _key(item: Item) -> str:
    return task_for(item, NOTHING).key or ""


def _status(item: Item) -> str:
    return standing(item.columns) if item.columns and is_task_file(item) else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
