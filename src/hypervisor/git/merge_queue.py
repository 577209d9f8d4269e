"""The merge queue of one lane: stacks the entries, verifies the stack, lands what passes.

It holds no state of its own: everything it needs comes from the queued entries, the refs of the
hub, the target and the cached verdicts. So it may be killed at any point and started again. A
decision counts once the caller asks for the next one: until then the caller may be killed, and gets
it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hypervisor.core.records import NamedTuple
from hypervisor.git.culprit import CONFIRMED
from hypervisor.git.decisions import (
    BaseFailed,
    Decision,
    Entry,
    EntryConflicted,
    EntryFailed,
    EntryLanded,
    FlakeFound,
    LandingRefused,
    NotVerified,
    TargetMoved,
    TargetUnreachable,
    Verifying,
)
from hypervisor.git.landing import (
    Destination,
    Landed,
    Moved,
    Refused,
    Unreachable,
    find_tip,
    land,
)
from hypervisor.git.lane_refs import Intent, LaneRefs
from hypervisor.git.stack import Conflict, Stacked, stack
from hypervisor.git.starting_point import starting_point
from hypervisor.git.trial import Trial, try_stack
from hypervisor.git.verify import UNVERIFIED, Verdict, Verifier
from hypervisor.git.verify_output import failure_text

MAX_STACK = 16
Steps = Generator[Decision, None, bool]  # whether to continue


class Gate(Protocol):
    """The ledger's word on which entries may land. None: the lane is no longer ours."""

    def wanted(self, entries: Sequence[str]) -> Collection[str] | None:
        """Those of these entries that are still to be merged."""
        ...

    def begin(self, entries: Sequence[str]) -> Collection[str] | None:
        """The same. If that is all of them, they can no longer be cancelled: the caller must land
        them now, and say so by its decisions or by `end`."""
        ...

    def end(self) -> None:
        """Nothing is about to land."""
        ...


class OpenGate:
    """Everything may land."""

    def wanted(self, entries: Sequence[str]) -> Collection[str] | None:
        return entries

    def begin(self, entries: Sequence[str]) -> Collection[str] | None:
        return entries

    def end(self) -> None:
        return None


@dataclass(frozen=True)
class Lane:
    """`base`: the commit to start from while the target does not exist. `width`: verifications at
    a time, by now. `recheck_base`: verify a target again that is known to fail; otherwise only
    once it has moved."""

    destination: Destination
    verifier: Verifier
    base: str
    width: Callable[[], int] = lambda: 1
    max_stack: int = MAX_STACK
    gate: Gate = field(default_factory=OpenGate)
    recheck_base: bool = True


class _Pile(NamedTuple):
    """Entries stacked on a tip. `start` is the commit below, `tip` where the target is. If they
    differ, `start` lands with the first entry."""

    start: str
    tip: str | None
    entries: list[Entry]
    stacked: list[Stacked]

    @property
    def commits(self) -> list[str]:
        return [self.start, *(change.commit for change in self.stacked)]


class MergeQueue:
    def __init__(self, lane: Lane) -> None:
        self._lane, self._destination = lane, lane.destination
        self._hub = lane.destination.hub
        self._refs = LaneRefs(self._hub, lane.destination.lane)
        self._waiting: list[Entry] = []

    def run(self, entries: Sequence[Entry]) -> Generator[Decision]:
        """Work through the entries, in their order. It ends when each is decided, or with the
        reason why the lane has to pause."""
        self._waiting = list(entries)
        if self._waiting and not self._lane.verifier.commands:
            yield NotVerified(UNVERIFIED)
        while self._waiting:
            tip = find_tip(self._destination)
            if isinstance(tip, Unreachable):
                yield TargetUnreachable(tip.reason)
                return
            if not (yield from self._settle(tip)):
                return
            self._lane.gate.end()
            pile = yield from self._stack(tip)
            if pile.entries and not (yield from self._try(pile)):
                return

    def _settle(self, tip: str | None) -> Steps:
        """Find out which of the entries that were about to land have landed, after we were
        killed or the target did not answer: their commits are on the target."""
        intent = self._refs.intent()
        landed = intent and tip and intent.landed_in(self._hub, tip)
        if not landed:
            return True
        where = self._destination.where
        if self._destination.mode == "pr":  # the pull request may be missing
            landing = land(self._destination, tip, landed.commit)
            if not isinstance(landing, Landed | Moved):
                yield _not_landed(tip, landing)
                return False
            where = landing.where if isinstance(landing, Landed) else where
        yield from self._tell_landed(landed, where)
        return True

    def _stack(self, tip: str | None) -> Generator[Decision, None, _Pile]:
        """Stack the entries that merge. An entry that merges with the target, but not with
        entries before it, waits until these have landed or are returned."""
        start = self._start(tip)
        pile = _Pile(start, tip, [], [])
        for entry in list(self._waiting):
            if len(pile.entries) == self._lane.max_stack:
                break
            top = pile.commits[-1]
            stacked = self._put(top, entry)
            start_is_new = top == start != tip
            if isinstance(stacked, Stacked) and (start_is_new or not stacked.unchanged):
                pile.entries.append(entry)
                pile.stacked.append(stacked)
                continue
            alone = stacked if top == start else self._put(start, entry)
            if isinstance(alone, Conflict):
                yield self._decided(EntryConflicted(entry, start, *alone))
            elif alone.unchanged:
                verified = bool(self._lane.verifier.commands)
                where = f"{self._destination.target} (it already had the change)"
                yield self._decided(EntryLanded(entry, start, where, verified, already=True))
        return pile

    def _start(self, tip: str | None) -> str:
        """On a branch of ours also what the batch started from. Other branches are the user's."""
        base, destination = self._lane.base, self._destination
        newest = tip or self._refs.landed()
        if newest is None or destination.mode != "branch":
            return newest or base
        return starting_point(self._hub, newest, base, destination.target)

    def _put(self, tip: str, entry: Entry) -> Stacked | Conflict:
        return stack(
            self._hub,
            tip,
            entry.head,
            base=entry.base,
            message=entry.message,
            strategy=entry.strategy,
        )

    def _try(self, pile: _Pile) -> Steps:
        """Verify the pile and land what passes."""
        known = self._lane.verifier.known(pile.start)
        if known and not known.passed and known.runs >= CONFIRMED and not self._lane.recheck_base:
            yield self._base_failed(pile.start, known)
            return False
        yield Verifying(tuple(pile.entries), pile.start)
        ids = [entry.id for entry in pile.entries]
        trial = try_stack(
            self._lane.verifier,
            pile.commits,
            self._lane.width,
            is_needed=lambda: self._lane.gate.wanted(ids) == ids,
        )
        if trial is None:
            return self._drop_cancelled()
        result = trial.result
        for prefix in result.flaky:
            yield _flake(pile.commits[prefix], trial, prefix)
        if result.base_failed:
            yield self._base_failed(pile.start, trial.last(0))
            return False
        if result.passed and not (yield from self._land(pile, result.passed)):
            return False
        moved = result.passed > 0 and pile.entries[0] in self._waiting
        if result.culprit is not None and not moved:
            yield self._decided(_failure(pile, trial, result.culprit))
        return True

    def _drop_cancelled(self) -> bool:
        """Forget entries that are no longer to be merged; False if the lane is not ours."""
        wanted = self._lane.gate.wanted([entry.id for entry in self._waiting])
        if wanted is not None:
            self._waiting = [entry for entry in self._waiting if entry.id in wanted]
        return wanted is not None

    def _base_failed(self, tip: str, verdict: Verdict) -> BaseFailed:
        line = f"verification fails on {self._destination.target} itself"
        return BaseFailed(tip, verdict, failure_text(line, verdict).partition("\n")[0])

    def _land(self, pile: _Pile, count: int) -> Steps:
        """Land the first entries of the pile; False if the lane has to pause."""
        verified = bool(self._lane.verifier.commands)
        made = zip(pile.entries[:count], pile.stacked, strict=False)
        intent = Intent(tuple((entry.id, each.commit, verified) for entry, each in made))
        self._refs.set_intent(intent.entries)  # before the point of no return: it is found again
        ids = [entry.id for entry in pile.entries[:count]]
        wanted = self._lane.gate.begin(ids)
        if wanted is None or len(wanted) < len(ids):
            self._refs.clear_intent()
            return self._drop_cancelled()
        landing = land(self._destination, pile.tip, intent.commit)
        if isinstance(landing, Landed):
            yield from self._tell_landed(intent, landing.where)
            return True
        if not isinstance(landing, Unreachable):  # whether that has landed is known later
            self._lane.gate.end()
        yield _not_landed(pile.tip, landing)
        return isinstance(landing, Moved)

    def _tell_landed(self, intent: Intent, where: str) -> Iterator[Decision]:
        """The record of what was about to land stays until the caller knows."""
        self._refs.set_landed(intent.commit)
        queued = {entry.id: entry for entry in self._waiting}
        for name, commit, verified in intent.entries:
            if name in queued:
                yield self._decided(EntryLanded(queued[name], commit, where, verified))
        self._refs.clear_intent()

    def _decided(self, decision: EntryLanded | EntryConflicted | EntryFailed) -> Decision:
        self._waiting.remove(decision.entry)
        return decision


def _not_landed(tip: str | None, landing: Moved | Refused | Unreachable) -> Decision:
    match landing:
        case Moved(new):
            return TargetMoved(tip, new)
        case Refused(reason):
            return LandingRefused(reason)
        case Unreachable(reason):
            return TargetUnreachable(reason)


def _flake(commit: str, trial: Trial, prefix: int) -> FlakeFound:
    verdicts = trial.verdicts[prefix]
    failed = next(verdict for verdict in verdicts if not verdict.passed)
    passed = next(verdict for verdict in verdicts if verdict.passed)
    reason = f"flaky verification: {failed.reason}, then passed on the same tree"
    return FlakeFound(commit, failed, passed, f"{reason}; output: {failed.output_path}")


def _failure(pile: _Pile, trial: Trial, culprit: int) -> EntryFailed:
    verdict, after = trial.last(culprit), culprit - 1
    together = f" (merged after {after} others of the queue)" if after else ""
    reason = failure_text(f"verification failed{together}", verdict)
    entry, commit = pile.entries[after], pile.stacked[after].commit
    return EntryFailed(entry, commit, pile.commits[after], after, verdict, reason)
