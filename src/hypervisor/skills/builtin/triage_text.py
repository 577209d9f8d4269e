"""What triage reads out of a task's text: its headings, checkboxes and words. Pure.

Task text is hostile: everything here takes time in proportion to the text, whatever is in it.
What triage itself or a receipt adds to a file (a link, the section "Receipts") is left out, so
that a second look at the file sees the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import normalize

from hypervisor.core.records import NamedTuple

WORD = re.compile(r"\w+")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
CHECKBOX = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[([ xX])\](?![^ \t])")
LINK = re.compile(r"\[\[[^\[\]\n]*\]\]")
FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+)?(`{3,}|~{3,})")
RECEIPTS = "receipts"


class Text(NamedTuple):
    """A body as triage sees it."""

    prose: str  # without code, comments, links and receipts
    headings: tuple[str, ...]
    ticked: int
    open: int


def read(body: str) -> Text:
    """Parse a body in one pass, line by line."""
    prose: list[str] = []
    headings: list[str] = []
    ticked = unticked = 0
    for line in _shown_lines(_without_comments(body)):
        prose.append(line)
        if "#" in line and (heading := HEADING.match(line)):
            headings.append(heading_text(heading[2]))
        elif "[" in line and (box := CHECKBOX.match(line)):
            if box[1] == " ":
                unticked += 1
            else:
                ticked += 1
    return Text(LINK.sub(" ", "\n".join(prose)), tuple(headings), ticked, unticked)


def first_few(rules: Sequence[str], most: int = 4) -> str:
    more = len(rules) - most
    return ", ".join(rules[:most]) + (f" and {more} more" if more > 0 else "")


def heading_text(text: str) -> str:
    """A heading to compare: without closing marks, in one case."""
    return text.rstrip(" \t#").rstrip().casefold()


def _without_comments(body: str) -> str:
    if "<!--" not in body:
        return body
    first, *rest = body.split("<!--")
    # an unclosed comment extends to the end, as in browsers
    return first + " ".join(part.partition("-->")[2] for part in rest)


def _shown_lines(body: str) -> Iterator[str]:
    """The lines outside of code fences and of the receipts."""
    fence = ""
    receipts_level = 0
    for line in body.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if fence or "```" in line or "~~~" in line:
            was, fence = fence, _fence_after(fence, line)
            if was or fence:
                continue
        if "#" in line and (heading := HEADING.match(line)):
            level = len(heading[1])
            if heading_text(heading[2]) == RECEIPTS:
                receipts_level = level
            elif level <= receipts_level:
                receipts_level = 0
        if not receipts_level:
            yield line


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open after this line; empty: none."""
    match = FENCE.match(line)
    if match is None:
        return fence
    if not fence:
        return match[1]
    closes = match[1].startswith(fence) and not line.strip(" \t>`~")
    return "" if closes else fence


class NormalizedText:
    """A text as words in one case, to look rules up in."""

    __slots__ = ("_beginnings", "count", "joined", "words")

    def __init__(self, text: str) -> None:
        words = WORD.findall(folded(text))
        self.count = len(words)
        self.words = set(words)
        self.joined = f" {' '.join(words)} "
        self._beginnings: dict[int, set[str]] = {}

    def beginnings(self, length: int) -> set[str]:
        """The first letters of each word, which rules with a star are compared with."""
        if length not in self._beginnings:
            self._beginnings[length] = {word[:length] for word in self.words}
        return self._beginnings[length]


def folded(text: str) -> str:
    """One case, and one way to write each accent."""
    return text.lower() if text.isascii() else normalize("NFC", text).casefold()


class WordList:
    """Words, words with a star, and phrases, compiled so that matching is fast."""

    __slots__ = ("_first_words", "_phrases", "_stems", "_words")

    def __init__(self, rules: Iterable[str]) -> None:
        self._words: set[str] = set()
        self._stems: dict[int, set[str]] = {}
        self._phrases: dict[str, list[Phrase]] = {}  # by their first word; "": it has a star
        for rule in rules:
            self._add(rule)
        self._first_words = frozenset(self._phrases)

    def matches(self, text: NormalizedText) -> list[str]:
        """The rules that fit somewhere in the text, each once, sorted."""
        matches = [*(self._words & text.words)]
        for length, stems in self._stems.items():
            matches += [f"{stem}*" for stem in stems & text.beginnings(length)]
        for first in self._first_words & text.words | {""}:
            matches += [
                p.rule for p in self._phrases.get(first, ()) if p.pattern.search(text.joined)
            ]
        return sorted(matches)

    def _add(self, rule: str) -> None:
        first, *rest = re.findall(r"\w+\*?", folded(rule))
        if rest:
            words = " ".join([first, *rest])
            phrase = Phrase(words, re.compile(f" {words} ".replace("*", r"\w*")))
            self._phrases.setdefault("" if "*" in first else first, []).append(phrase)
        elif first.endswith("*"):
            self._stems.setdefault(len(first) - 1, set()).add(first[:-1])
        else:
            self._words.add(first)


class Phrase(NamedTuple):
    rule: str
    pattern: re.Pattern[str]
