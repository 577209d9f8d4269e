"""The skills that `hv run NAME PATH` knows: what each runs and how its batch is made."""

from __future__ import annotations

from typing import NamedTuple


class Skill(NamedTuple):
    """A recipe: the function, what its items are, and what it writes into them."""

    name: str
    about: str
    function: str
    format: str  # what PATH is read as
    type: str
    write_back: str = "none"


SKILLS = {
    skill.name: skill
    for skill in (
        Skill(
            "triage",
            "sort task files: closed or open, complexity, assignee, project links",
            "hypervisor.skills.triage:run",
            "tasks",
            "triage",
            "receipts",
        ),
    )
}
