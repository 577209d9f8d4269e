"""The hive: findings of agents and people, by branch.

A finding is never changed. One that says the same as an earlier one of its branch joins it: the
first is shown for both, and both sources are kept. Reading a branch includes its ancestors.
With `[hive] review`, an agent gets findings of other agents from another branch only after a person
has approved them; this holds for every wording on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Literal

from hypervisor.core import validate
from hypervisor.core.ids import clean, decode
from hypervisor.core.records import NamedTuple

MAX_FINDING_LENGTH = 20_000
MAX_SEARCHED = 12  # words of a query
RARE = 300  # findings: a word with fewer is searched completely, otherwise only the newest
MAX_COMPARED_FINDINGS = 60  # candidates whose texts are read, unless more are asked for
MAX_WORDINGS = 3  # shown in addition to the first
Trust = Literal["agent", "person", "reviewed"]
SOURCE_WEIGHT = 0.5  # of another source that says the same, relative to a rare word
SAME_BRANCH_WEIGHT = 0.25  # of a finding of the branch itself and not of an ancestor


class NewFinding(NamedTuple):
    text: str
    branch: str = ""
    topic: str = ""
    kind: str = "finding"


class Finding(NamedTuple):
    """`joins` is the id of the finding that it repeats, "" if it is the first. `trust` is `agent`
    until a person has reviewed it."""

    id: str
    branch: str
    topic: str
    kind: str
    text: str
    task: str
    attempt: int
    agent: str
    actor: str
    at: int
    joins: str = ""
    trust: Trust = "agent"

    @property
    def source(self) -> str:
        """Who found it: a task or a person."""
        return self.task or self.actor

    @property
    def author(self) -> str:
        """Whose words it has, for a prompt."""
        if self.trust == "person":
            return "by a person"
        by = f"by {self.agent or 'an agent'}"
        return f"{by}, reviewed" if self.trust == "reviewed" else by

    def visible_to(self, reader: str | None) -> bool:
        """Whether an agent of the branch `reader` may read it unreviewed; None is a person."""
        return reader is None or self.branch == reader or self.trust != "agent"


class Doubt(NamedTuple):
    """A finding that may contradict another one, and the reason."""

    other: str
    text: str
    why: str


class Known(NamedTuple):
    """A finding with all that joined it: how many `times` it was found, by how many `sources`.
    `also` are wordings that add something to the first."""

    finding: Finding
    times: int = 1
    sources: int = 1
    doubts: tuple[Doubt, ...] = ()
    also: tuple[str, ...] = ()


class Remembered(NamedTuple):
    """The result of `remember`; `known` is the finding that is shown for it."""

    id: str
    joined: bool
    known: Known


class Query(NamedTuple):
    """Which findings: `branches` from nearest to farthest, None for all. `reader` is the branch of
    an agent that may not read unreviewed findings of other branches."""

    words: tuple[str, ...] = ()
    branches: tuple[str, ...] | None = None
    topic: str = ""
    kind: str = ""
    task: str = ""
    reader: str | None = None


def finding_id(text: str) -> str:
    """The id of a finding as a person typed it."""
    return clean(validate.text("the finding", text, 60, empty=False))


def weight(findings: int) -> float:
    """The weight of a word that this many findings have (counted up to RARE)."""
    return log(1 + 1000 / max(findings, 1))


def shortlist(
    by_word: Mapping[str, Collection[int]], every: Collection[int], wanted: int
) -> list[int]:
    """The most promising findings among those that match each word, or all words together."""
    scores: dict[int, float] = {}
    for numbers in by_word.values():
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weight(len(numbers))
    scores |= dict.fromkeys(every, sum(weight(len(numbers)) for numbers in by_word.values()))
    best = sorted(scores, key=lambda number: (-scores[number], -number))
    return best[: max(MAX_COMPARED_FINDINGS, wanted)]


def rank(
    known: Sequence[Known],
    weights: Mapping[str, float],
    branches: Sequence[str] | None,
    by_word: Mapping[str, Collection[int]],
) -> list[Known]:
    """Best first: rare words count more, then the number of sources, the branch, the age. A word
    may occur only in another wording; then only the index has it."""
    from hypervisor.hive.similarity import words  # most callers do not rank

    def score(candidate: Known) -> tuple[float, str]:
        finding = candidate.finding
        own_words = set(words(f"{finding.topic} {finding.text}"))
        number = decode(finding.id)
        matched = sum(
            w for word, w in weights.items() if word in own_words or number in by_word[word]
        )
        by_sources = SOURCE_WEIGHT * log(candidate.sources)
        by_branch = SAME_BRANCH_WEIGHT if branches and finding.branch == branches[0] else 0.0
        return matched + by_sources + by_branch, finding.id

    return sorted(known, key=score, reverse=True)


def other_wordings(text: str, others: Sequence[str]) -> tuple[str, ...]:
    """The other wordings that have significant words which none before them has."""
    from hypervisor.hive.similarity import MAX_WORDS, search_words

    wordings: list[str] = []
    known_words = set(search_words(text, MAX_WORDS))
    for other in others:
        if len(wordings) == MAX_WORDINGS:
            break
        if new_words := set(search_words(other, MAX_WORDS)) - known_words:
            wordings.append(other)
            known_words |= new_words
    return tuple(wordings)


def one_line(known: Known, limit: int = MAX_FINDING_LENGTH) -> str:
    """A finding on one line, for a prompt."""
    finding = known.finding
    also = f" (also: {'; '.join(known.also)})" if known.also else ""
    text = " ".join((finding.text + also).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    about = ", ".join(part for part in (finding.topic, finding.kind, finding.author) if part)
    by = f" (found by {known.sources} agents)" if known.sources > 1 else ""
    doubt = (
        f" (in doubt, {known.doubts[0].why}: see {known.doubts[0].other})" if known.doubts else ""
    )
    return f"- [{finding.id}; {about}] {text}{by}{doubt}"
