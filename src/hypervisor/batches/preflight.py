"""Pre-flight: checks the items and the store before a run, and changes nothing.

The survey goes item by item and keeps only a digest of each key, the files it names and, for task
files, its id, so it can be part of the first pass of a run. The run then uses `skips`,
`exclusive_for` and `after_for`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from hypervisor.batches.item_links import ItemLinks
from hypervisor.batches.preflight_findings import (
    CANCELLED,
    CLAIMED,
    DONE,
    KINDS,
    TRIED_AGAIN,
    Estimate,
    Finding,
    FindingKind,
    Preflight,
    advice,
    assignee,
    excess,
    headline,
    order,
    status_in_file,
    survey_finding,
)
from hypervisor.batches.sql import report
from hypervisor.core.errors import RequestError
from hypervisor.core.ids import key_digest
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.item_names import printable_path, text_as_data
from hypervisor.inputs.items import task_for
from hypervisor.inputs.named_files import Conflict, NamedFiles, declared, is_readable, is_task_file
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.rerun import Rerun, tasks_to_redo

EXAMPLES = 10
SLICE = 4_096
DIGEST = 16
NOTHING = NewTask("")


class RunIntent(NamedTuple):
    """What is about to be run."""

    root: str = "."
    batch: str | None = None
    type: str = "run"
    workers: int | None = None
    requires: tuple[str, ...] = ()
    known: Collection[str] | None = None  # people and agents; None: not checked
    in_text: bool = False  # also look for files in the text of task files
    rerun: Rerun = "changed"


class AgentChecks(Protocol):
    """Checks of a run by agents, implemented in agents/."""

    def add(self, task: NewTask) -> None: ...
    def findings(self, hv: Context | None, to_do: int) -> Iterator[Finding]: ...
    def order(self) -> tuple[str, ...]: ...
    def cost(self, hv: Context | None, to_do: int) -> int | None: ...


class ItemFiles(Protocol):
    """Checks of items that are files, implemented in git/."""

    def add(self, text: str) -> None: ...
    def findings(self) -> Iterator[Finding]: ...


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
    """Check items before a run: which are done, claimed, missing or conflicting, and the order."""
    survey = Survey(RunIntent(root, batch, type, workers, tuple(requires)))
    for item in items:
        survey.add(item)
    return survey.result(hv)


class Survey:
    """Call `add` for every item, then `result`; after that, the other methods may be used."""

    def __init__(
        self,
        intent: RunIntent,
        agents: AgentChecks | None = None,
        files: ItemFiles | None = None,
    ) -> None:
        self.intent = intent
        self.agents, self.files = agents, files
        self.items = 0
        self._files = NamedFiles(intent.root, intent.in_text)
        self._links = ItemLinks()
        self._seen: set[bytes] = set()
        self._repeated: dict[bytes, int] = {}
        # Digests of keys, by the status in the items' files: open, claimed …
        self._open = bytearray()
        self._claimed = bytearray()
        self._own_claims: frozenset[bytes] = frozenset()  # those that are in the store
        self._finished: dict[str, str] = {}  # … and done, with the paths
        self._redone: frozenset[str] = frozenset()  # those that are run again
        self._claimed_keys: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._requires: Counter[str] = Counter()

    def add(self, item: Item) -> None:
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
            if status == DONE:
                self._finished[digest.hex()] = item.text
            self._links.add_finished(item)
            return
        (self._claimed if status == CLAIMED else self._open).extend(digest)
        self._look_at(item, key, status)

    def result(self, hv: Context | None) -> Preflight:
        """The findings; without a store, no item was done before."""
        states = self._stored_states(hv)
        self.choose_rerun(hv, self.intent.rerun)
        for name in self._links.unknown(hv):
            self._note("unknown", name)
        linked, steps, cycles = self._links.chains()
        for cycle in cycles:
            self._note("cycle", cycle)
        conflicts, sharing = self._files.conflicts()
        claimed = len(self._claimed) // DIGEST - len(self._own_claims)
        stored, done = states.total(), states[DONE]
        tried_again = sum(states[state] for state in TRIED_AGAIN)
        new = (len(self._open) + len(self._claimed)) // DIGEST - claimed - stored
        to_do = new + stored - done + len(self._redone)
        estimate = self._estimate(hv, to_do)
        strategy, text = advice(to_do, linked, steps, len(conflicts) == 1 and sharing >= to_do > 1)
        findings = tuple(self._findings(hv, states, estimate, to_do, conflicts))
        result = Preflight(
            headline="",
            clear=not any(finding.in_the_way for finding in findings),
            items=self.items,
            to_do=to_do,
            new=new,
            tried_again=tried_again,
            still_open=stored - done - tried_again,
            complete=self._counts[DONE] + done - len(self._redone),
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
        return result._replace(order=(*order(result, sharing), *agents), headline=headline(result))

    def choose_rerun(self, hv: Context | None, rerun: Rerun) -> None:
        """Decide which task files with status done are run again."""
        self.intent = self.intent._replace(rerun=rerun)
        self._redone = self._finished_to_redo(hv)

    def skips(self, item: Item) -> str:
        """Why the item is not run, according to its own file; "" if it is run."""
        status = _status(item)
        if status == CLAIMED and key_digest(_key(item)) in self._own_claims:
            return ""  # by an earlier run of this batch, which is being resumed
        if status == DONE and key_digest(_key(item)).hex() in self._redone:
            return ""  # by an earlier run of this batch, and changed since
        return status

    def links(self) -> Iterator[tuple[str, str]]:
        """The dependencies as pairs of keys."""
        return self._links.pairs()

    def exclusive_for(self, item: Item) -> tuple[str, ...]:
        """Keys for the files that this item shares with others; most items have none."""
        return self._files.keys_for(item)

    def after_for(self, item: Item) -> tuple[str, ...]:
        """The keys or ids of the tasks that this item waits for, if any. Items claimed by others
        are not part of the run, so nothing can wait for them here."""
        needs = self._links.after(item, _key(item))
        return tuple(
            key
            for key in needs
            if key not in self._claimed_keys or key_digest(key) in self._own_claims
        )

    def _look_at(self, item: Item, key: str, status: str) -> None:
        if not is_readable(item):
            self._note("unreadable", item.text)
        if self.files and status != CLAIMED:
            self.files.add(item.text)
        if item.columns is None:
            return
        owner = assignee(item.columns) if is_task_file(item) else ""
        if status == CLAIMED:
            self._claimed_keys.add(key)
            self._note("claimed", f"{item.text} ({owner})")
        self._files.add(item)
        self._links.add(item, key)
        self._requires.update(set(declared(item, "requires")).difference(self.intent.requires))
        if owner and self.intent.known is not None and owner not in self.intent.known:
            self._note("assignee", f"{owner} ({item.text})")

    def _note(self, kind: FindingKind, example: str) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(printable_path(example)[:200])

    def _stored_states(self, hv: Context | None) -> Counter[str]:
        """The number of stored items in each state."""
        states: Counter[str] = Counter()
        batch = _batch_id(hv, self.intent.batch)
        if hv is None or batch is None:
            return states
        for page in _slices(self._open):
            states.update(hv.store.read(report.states_of_keys, batch, page).values())
        own: set[bytes] = set()
        for page in _slices(self._claimed):
            stored = hv.store.read(report.states_of_keys, batch, page)
            states.update(stored.values())
            own.update(map(bytes.fromhex, stored))
        self._own_claims = frozenset(own)
        return states

    def _finished_to_redo(self, hv: Context | None) -> frozenset[str]:
        """Items that an earlier run of this batch has done and this one will redo."""
        batch = _batch_id(hv, self.intent.batch)
        if hv is None or batch is None or not self._finished:
            return frozenset()
        done = hv.store.read(report.done_by_key, batch, list(self._finished))
        items = {task: text_as_data(self._finished[digest]) for digest, task in done.items()}
        redo = tasks_to_redo(hv, self.intent.root, items, self.intent.rerun, hv.now() + 1)
        return frozenset(digest for digest, task in done.items() if task in set(redo))

    def _estimate(self, hv: Context | None, to_do: int) -> Estimate:
        requested = self.intent.workers or (hv.settings.workers if hv else None) or _cores()
        workers = max(1, min(requested, to_do))
        if hv is None:
            return Estimate(workers)
        peak = hv.store.read(runs_sql.memory_peak, self.intent.type)
        batch = _batch_id(hv, self.intent.batch)
        before = hv.store.read(report.experience, self.intent.type, batch)
        duration, output = before.milliseconds, before.output
        return Estimate(
            workers,
            peak,
            _memory(),
            None if output is None else min(output, hv.settings.keep_each) * to_do,
            hv.outputs.room(),
            None if duration is None or not to_do else duration * -(-to_do // workers),
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
        """Problems first."""
        for kind in KINDS:
            if count := self._counts[kind]:
                yield survey_finding(kind, count, self._examples[kind])
        yield from self.files.findings() if self.files else ()
        yield from self.agents.findings(hv, to_do) if self.agents else self._lacking(hv)
        yield from excess(estimate)
        if count := len(conflicts) if to_do > 1 else 0:
            files = "file is" if count == 1 else "files are"
            text = f"{count:,} {files} named by several items, which run one at a time"
            examples = tuple(_conflict(*conflict) for conflict in conflicts[:EXAMPLES])
            yield Finding("overlap", count, text, examples)
        if count := len(self._files.absent):
            exist = "does" if count == 1 else "do"
            text = f"{count:,} of the files named by items {exist} not exist yet"
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
            text = "items require capabilities that config.toml of this host does not list"
            yield Finding("capability", len(lacking), text, tuple(lacking[:EXAMPLES]), True)


def _conflict(name: str, count: int, examples: tuple[str, ...]) -> str:
    more = ", …" if count > len(examples) else ""
    return f"{name}: {count:,} items ({', '.join(examples)}{more})"


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
    return status_in_file(item.columns) if item.columns and is_task_file(item) else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
