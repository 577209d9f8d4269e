"""The hive: what agents and people found out, kept by branch.

A finding is never changed. One that says what another of its branch says already joins it: the
first one stands for all, every source is kept. Reading a branch includes its ancestors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import NamedTuple

from hypervisor.core.ids import decode

LONGEST_FINDING = 20_000
MOST_SEARCHED = 12  # words of a query
RARE = 300  # a word with fewer findings than this is searched through, else the newest are seen
MOST_WEIGHED = 60  # candidates whose texts are read, unless more are asked for
MOST_WORDINGS = 3  # that are shown beside the first
OFTEN = 0.5  # what it is worth, in rare words, that another source says the same
NEAR = 0.25  # … that it is of the branch itself and not of an ancestor


class NewFinding(NamedTuple):
    text: str
    branch: str = ""
    topic: str = ""
    kind: str = "finding"


class Finding(NamedTuple):
    """`joins` is the id of the finding that it repeats, "" for one that stands for itself."""

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

    @property
    def source(self) -> str:
        """Who found it: each task counts as one, and each person."""
        return self.task or self.actor


class Doubt(NamedTuple):
    """A finding that may speak against another one, and why it looks so."""

    other: str
    text: str
    why: str


class Known(NamedTuple):
    """A finding with all that joined it: `times` it was found, by so many `sources`. `also` are
    wordings that say more than the first."""

    finding: Finding
    times: int = 1
    sources: int = 1
    doubts: tuple[Doubt, ...] = ()
    also: tuple[str, ...] = ()


class Remembered(NamedTuple):
    """What became of a finding; `known` is the one that stands for it now."""

    id: str
    joined: bool
    known: Known


class Query(NamedTuple):
    """Which findings: `branches` from the nearest to the farthest, None for all there are."""

    words: tuple[str, ...] = ()
    branches: tuple[str, ...] | None = None
    topic: str = ""
    kind: str = ""
    task: str = ""


def weight(findings: int) -> float:
    """What a word tells that so many findings have (counted up to RARE)."""
    return log(1 + 1000 / max(findings, 1))


def shortlist(
    by_word: Mapping[str, Collection[int]], every: Collection[int], wanted: int
) -> list[int]:
    """The most promising of the findings that each word, or all of them together, led to."""
    scores: dict[int, float] = {}
    for numbers in by_word.values():
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weight(len(numbers))
    scores |= dict.fromkeys(every, sum(weight(len(numbers)) for numbers in by_word.values()))
    best = sorted(scores, key=lambda number: (-scores[number], -number))
    return best[: max(MOST_WEIGHED, wanted)]


def rank(
    known: Sequence[Known],
    weights: Mapping[str, float],
    branches: Sequence[str] | None,
    by_word: Mapping[str, Collection[int]],
) -> list[Known]:
    """Best first: rare words count more, then how many say so, how near, how new. A word may be
    one of another wording; then only the index led to it."""
    from hypervisor.hive.similarity import words  # most who name a branch compare no texts

    def score(candidate: Known) -> tuple[float, str]:
        finding = candidate.finding
        own_words = set(words(f"{finding.topic} {finding.text}"))
        number = decode(finding.id)
        matched = sum(
            w for word, w in weights.items() if word in own_words or number in by_word[word]
        )
        often = OFTEN * log(candidate.sources)
        near = NEAR if branches and finding.branch == branches[0] else 0.0
        return matched + often + near, finding.id

    return sorted(known, key=score, reverse=True)


def other_wordings(text: str, others: Sequence[str]) -> tuple[str, ...]:
    """Those of the other wordings that have telling words which none before has."""
    from hypervisor.hive.similarity import MOST_WORDS, search_words

    wordings: list[str] = []
    known_words = set(search_words(text, MOST_WORDS))
    for other in others:
        if len(wordings) == MOST_WORDINGS:
            break
        if new_words := set(search_words(other, MOST_WORDS)) - known_words:
            wordings.append(other)
            known_words |= new_words
    return tuple(wordings)


def one_line(known: Known, longest: int = LONGEST_FINDING) -> str:
    """A finding on one line, for a prompt."""
    finding = known.finding
    also = f" (also: {'; '.join(known.also)})" if known.also else ""
    text = " ".join((finding.text + also).split())
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    about = ", ".join(part for part in (finding.topic, finding.kind) if part)
    by = f" (found by {known.sources} agents)" if known.sources > 1 else ""
    doubt = (
        f" (in doubt, {known.doubts[0].why}: see {known.doubts[0].other})" if known.doubts else ""
    )
    return f"- [{finding.id}; {about}] {text}{by}{doubt}"
