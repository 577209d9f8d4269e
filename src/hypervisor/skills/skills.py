"""Skills with their records.

The record of a skill is the sum over the batches made from it, and what the learner knows about
it. Nothing is counted twice: later stages and the reduce belong to the same run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hypervisor.batches.pipeline_names import batches_of
from hypervisor.batches.sql import summary
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.task import Batch
from hypervisor.skills.folders import OLD_NAMES, FoundSkill, Place, all_skills, require_skill

if TYPE_CHECKING:
    from hypervisor.learning.learn import Learned

MAX_BATCHES = 10_000
BAD = ("failed", "cancelled", "blocked", "review")


class SkillRecord(NamedTuple):
    """The record of a skill so far. `success` is the share of the ended tasks that are done;
    `seconds` is the sum of the runs' durations, each from the first attempt to the last."""

    runs: int = 0
    tasks: int = 0
    done: int = 0
    success: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    cost_micros: int | None = None
    estimated: bool = False
    last_at: int | None = None  # when the newest of its batches was created


class SkillView(NamedTuple):
    """A skill as listed by `hv skills`. `problem`: why it cannot be used."""

    name: str
    description: str
    kind: str  # where it is from: project, user or built-in
    folder: str
    hides: tuple[str, ...]
    record: SkillRecord
    problem: str = ""


class SkillDetails(NamedTuple):
    """A skill in full: `fields` is its front matter, `learned` what the learner knows."""

    view: SkillView
    fields: dict[str, Any]
    body: str
    batches: tuple[str, ...]
    learned: Learned | None


def skills(hv: Context, where: tuple[Place, ...] | None = None) -> tuple[SkillView, ...]:
    """List the skills with their description, origin and record."""
    usable, broken = all_skills(where)
    batches = _batches(hv)
    views = [
        _view(usable_skill, record_of(hv, batches.get(usable_skill.skill.name, ())))
        for usable_skill in usable
    ]
    views += [
        SkillView(skill.name, "", skill.kind, skill.folder, (), SkillRecord(), skill.why)
        for skill in broken
    ]
    return tuple(sorted(views, key=lambda view: view.name))


def skill(hv: Context, name: str) -> SkillDetails:
    """Show a skill: its fields, text and record, and how much it gains from parallel workers."""
    from hypervisor.learning.learn import gain_of_skill

    skill = require_skill(name)
    name = skill.skill.name
    batches = _batches(hv).get(name, [])
    return SkillDetails(
        _view(skill, record_of(hv, batches)),
        dict(skill.skill.fields),
        skill.skill.body,
        tuple(batch.name for batch in batches),
        gain_of_skill(hv, name) if hv.has_store else None,
    )


def record_of(hv: Context, batches: Iterable[Batch]) -> SkillRecord:
    """The results of these batches, newest first, and of their later stages."""
    record, ended = SkillRecord(), 0
    for batch in batches:
        parts = batches_of(hv, batch.id)
        for part in parts:
            record, ended = _with_part(hv, record, ended, part)
        totals = [hv.store.read(summary.totals, part, hv.now()) for part in parts]
        begun = min((total.begun for total in totals if total.begun), default=0)
        last = max((total.ended for total in totals if total.begun), default=0)
        record = record._replace(
            runs=record.runs + 1,
            seconds=record.seconds + ((last - begun) / 1000 if begun else 0.0),
            last_at=record.last_at or batch.created_at,
        )
    return record._replace(success=record.done / ended if ended else None)


def _with_part(hv: Context, record: SkillRecord, ended: int, batch: str) -> tuple[SkillRecord, int]:
    states = hv.store.read(queries.stats, batch, hv.now(), False).states
    done, spent = states[lifecycle.DONE], hv.store.read(agent_sessions.spent, batch)
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
    """The batches of each skill, newest first; of a pipeline, only the first stage."""
    batches: dict[str, list[Batch]] = {}
    for batch in hv.store.read(queries.batches, MAX_BATCHES) if hv.has_store else ():
        name = batch.spec.get("skill") if isinstance(batch.spec, dict) else None
        if isinstance(name, str) and name and batches_of(hv, batch.id)[0] == batch.id:
            batches.setdefault(OLD_NAMES.get(name, name), []).append(batch)
    return batches


def _view(found: FoundSkill, record: SkillRecord) -> SkillView:
    skill = found.skill
    return SkillView(skill.name, skill.description, found.kind, found.folder, found.hides, record)
