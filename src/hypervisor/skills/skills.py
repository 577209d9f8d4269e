"""Skills: which there are, what each does, and how it has done so far.

The record of a skill is the sum over the batches that were made from it, and what the learner
has found out about it. Nothing is counted twice: what follows on the items of a
batch, such as a reduce, belongs to the same run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hypervisor.agents.sql import sessions
from hypervisor.batches.pipeline import batches_of
from hypervisor.batches.sql import summary
from hypervisor.learning.learn import Learned, gain_of_skill
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch
from hypervisor.skills.folders import BrokenSkill, FoundSkill, Place, all_skills, require_skill

MOST_BATCHES = 10_000
BAD = ("failed", "cancelled", "blocked", "review")


class SkillRecord(NamedTuple):
    """What came of a skill so far. `success` is the share of the tasks that have ended which
    are done; `seconds` from a run's first attempt to its last, added up."""

    runs: int = 0
    tasks: int = 0
    done: int = 0
    success: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    cost_micros: int | None = None
    estimated: bool = False
    last_at: int | None = None  # when the newest of its batches was made


class SkillView(NamedTuple):
    """A skill as `hv skills` lists it. `problem` says why it cannot be used."""

    name: str
    description: str
    kind: str  # where it is from: project, user or built-in
    folder: str
    hides: tuple[str, ...]
    record: SkillRecord
    problem: str = ""


class SkillDetails(NamedTuple):
    """All about a skill: `fields` is its front matter, `learned` what the learner knows."""

    view: SkillView
    fields: dict[str, Any]
    body: str
    batches: tuple[str, ...]
    learned: Learned | None


def skills(hv: Context, where: tuple[Place, ...] | None = None) -> tuple[SkillView, ...]:
    """List the skills: what each does, where it is from, and how it has done so far."""
    found, broken = all_skills(where)
    made = _batches(hv)
    views = [_view(each, record_of(hv, made.get(each.skill.name, ()))) for each in found]
    views += [_broken(each) for each in broken]
    return tuple(sorted(views, key=lambda view: view.name))


def skill(hv: Context, name: str) -> SkillDetails:
    """Show a skill: its fields, its text, its record, and what parallelism is worth to it."""
    found = require_skill(name)
    made = _batches(hv).get(name, [])
    return SkillDetails(
        _view(found, record_of(hv, made)),
        dict(found.skill.fields),
        found.skill.body,
        tuple(batch.name for batch in made),
        gain_of_skill(hv, name) if hv.has_store else None,
    )


def record_of(hv: Context, batches: Iterable[Batch]) -> SkillRecord:
    """What came of these batches, newest first, and of what follows on them."""
    record, ended = SkillRecord(), 0
    for batch in batches:
        parts = batches_of(hv, batch.id)
        for part in parts:
            record, ended = _with_part(hv, record, ended, part)
        sums = [
            each
            for each in (hv.store.read(summary.totals, part, hv.now()) for part in parts)
            if each.begun
        ]
        begun = min((each.begun for each in sums), default=0)
        last = max((each.ended for each in sums), default=0)
        record = record._replace(
            runs=record.runs + 1,
            seconds=record.seconds + ((last - begun) / 1000 if begun else 0.0),
            last_at=record.last_at or batch.created_at,
        )
    return record._replace(success=record.done / ended if ended else None)


def _with_part(hv: Context, record: SkillRecord, ended: int, batch: str) -> tuple[SkillRecord, int]:
    states = hv.store.read(queries.stats, batch, hv.now(), False).states
    done, spent = states[lifecycle.DONE], hv.store.read(sessions.spent, batch)
    cost = record.cost_micros
    if spent.cost_micros:
        cost = (cost or 0) + spent.cost_micros
    record = record._replace(
        tasks=record.tasks + sum(states.values()),
        done=record.done + done,
        tokens=record.tokens + spent.tokens,
        cost_micros=cost,
        estimated=record.estimated or spent.estimated,
    )
    return record, ended + done + sum(states[state] for state in BAD)


def _batches(hv: Context) -> dict[str, list[Batch]]:
    """The batches of each skill, newest first; of a whole with several parts, the first."""
    found: dict[str, list[Batch]] = {}
    for batch in hv.store.read(queries.batches, MOST_BATCHES) if hv.has_store else ():
        name = batch.spec.get("skill") if isinstance(batch.spec, dict) else None
        if isinstance(name, str) and name and batches_of(hv, batch.id)[0] == batch.id:
            found.setdefault(name, []).append(batch)
    return found


def _view(found: FoundSkill, record: SkillRecord) -> SkillView:
    skill = found.skill
    return SkillView(skill.name, skill.description, found.kind, found.folder, found.hides, record)


def _broken(each: BrokenSkill) -> SkillView:
    return SkillView(each.name, "", each.kind, each.folder, (), SkillRecord(), each.why)
