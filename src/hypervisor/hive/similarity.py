"""How similar two texts are: their words, a signature to find similar ones, and contradictions.
Pure rules on words; nothing here knows what a text means.

Words are made here, so they are the same on both databases: lower case, without accents, singular,
and a letter at a time for scripts without spaces.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from hypervisor.core.records import NamedTuple

ALIKE = 0.7  # share of common words from which two texts say the same
SAME_SUBJECT = 0.6
SAME_MEASURE = 0.75  # … for two texts that differ in a number
BANDS, ROWS = 12, 3  # of a signature: texts with SAME_SUBJECT share a band 19 times out of 20
MAX_WORDS = 5_000  # of one text that are used
MAX_WORD_LENGTH = 64  # the rest is cut off; databases limit the length of a word

WORD = re.compile(r"[^\W_]+")
NEITHER = re.compile(r"[^\w\s]")
NUMBER = re.compile(r"(?:(?<![^\s(=])[-−])?\d+(?:[.,]\d+)*")
# A position does not matter: the same thing may be found in two lines.
PLACE = re.compile(
    r"(?:\blines?|\brows?|\bcolumns?|\bpages?|\bpp?\.|#|:)\s*\d+(?:\s*[-–,:]\s*\d+)*", re.I
)
WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0edf\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_STOP = (
    "a an and are as at be been by for from has have in into is it its of on or that the their "
    "then there these this those to was were which will with"
)
STOP_WORDS = frozenset(_STOP.split())
_NOT = "not no never none without cannot isnt dont doesnt didnt wont cant aint nor nothing neither"
NEGATIONS = frozenset(_NOT.split())
# Words that two agents may choose differently for the same thing; any other may name another thing.
_WEAK = (
    "issue problem bug error flaw weakness finding found find see seen seem appear contain use "
    "used using build built construct create make made allow enable lead cause result due via when "
    "where while because since may might can could should would possible potential potentially "
    "direct directly currently also very here still just only such than so both all any each "
    "critical serious severe important note warning"
)
WEAK_WORDS = frozenset(_WEAK.split())
# Endings of forms of one word. Few, because market and marketing are two things.
ENDING = re.compile(r"(?:(?<=at)(?:ing|ion)|(?<=b)(?:le|ility)|ed|e?ly|e)\Z")
MIN_STEM = 5  # letters that two forms of a word must have in common
VERDICTS: tuple[tuple[str, str], ...] = (
    (
        "safe secure harmless sanitized sanitised escaped protected",
        "unsafe insecure vulnerable dangerous exploitable unsanitized unsanitised unescaped "
        "injectable unprotected",
    ),
    ("correct right valid true", "incorrect wrong invalid false"),
    (
        "works working passes passed passing succeeds succeeded ok fine",
        "fails failed failing broken breaks crashes crashed",
    ),
    ("exists present found available", "missing absent unavailable"),
    ("needed required used necessary", "unneeded unused unnecessary superfluous obsolete"),
    ("enabled active", "disabled off inactive"),  # and "turned on": see _turned_on
    ("allowed permitted accepted", "forbidden denied refused rejected"),
    ("fixed resolved solved", "unfixed unresolved unsolved open"),
    ("fast faster", "slow slower"),
    ("complete finished done", "incomplete unfinished"),
)
TURNED = ("turned", "turn", "switched", "switch")
BEING = ("is", "are", "was", "were", "be", "been", "not")
PRIME = (1 << 61) - 1


class TextSignature(NamedTuple):
    """The parts of a text that are compared."""

    words: frozenset[str]
    subject: frozenset[str]  # without verdicts and numbers
    exact: frozenset[str]  # must be equal: all numbers, signs like <, letters like दि
    measures: frozenset[str]  # numbers without those that only name a position
    leaning: dict[int, bool]  # for or against, by the row of VERDICTS; -1: negated at all


def words(text: str) -> list[str]:
    """The words of a text in their order, as they are searched and compared."""
    plain = text.casefold() if text.isascii() else _without_accents(text)
    result: list[str] = []
    for word in WORD.findall(plain.replace("'", "").replace("’", "")):
        if not word.isascii() and WITHOUT_SPACES.search(word):
            result += [part[:MAX_WORD_LENGTH] for part in _letters(word) if part]
        else:
            result.append(_singular(word)[:MAX_WORD_LENGTH])
        if len(result) >= MAX_WORDS:
            break
    return result[:MAX_WORDS]


def search_words(text: str, limit: int) -> list[str]:
    """The words worth searching for, each once: all, if the text has only stop words."""
    unique = list(dict.fromkeys(words(text)))
    telling = [word for word in unique if word not in STOP_WORDS]
    return (telling or unique)[:limit]


def digest_text(text: str) -> TextSignature:
    all_words = words(text)
    content = frozenset(word for word in all_words if word not in STOP_WORDS)
    # Without a significant word, only the same text is similar.
    content = content or frozenset({" ".join(text.split())})
    leaning = _leaning(all_words)
    subject = frozenset(
        word
        for word in content
        if word not in NEGATIONS and word not in _sides() and not word[:1].isdigit()
    )
    exact = frozenset(NUMBER.findall(text)) | _signs(text) | _marked(text)
    measures = frozenset(NUMBER.findall(PLACE.sub(" ", text)))
    return TextSignature(content, subject, exact, measures, leaning)


def signature(text: TextSignature) -> list[str]:
    """A few marks, of which texts about the same subject share at least one (MinHash)."""
    from hashlib import blake2b
    from zlib import crc32

    hashes = [crc32(word.encode()) + 1 for word in (text.subject or text.words)]
    least = [min((a * hashed + b) % PRIME for hashed in hashes) for a, b in _permutations()]
    bands = (least[start : start + ROWS] for start in range(0, BANDS * ROWS, ROWS))
    return [
        blake2b(f"{number}:{band}".encode(), digest_size=6).hexdigest()
        for number, band in enumerate(bands)
    ]


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    union = left | right
    return len(left & right) / len(union) if union else 1.0


def same(one: TextSignature, other: TextSignature) -> bool:
    """Whether two texts say the same: nearly the same words, the same numbers and signs, no
    opposite verdict. One may say more than the other, but not each something the other does not."""
    return (
        one.exact == other.exact
        and not _opposed(one, other)
        and (-1 in one.leaning) == (-1 in other.leaning)
        and jaccard(one.words, other.words) >= ALIKE
        and not (_lacks(one, other) and _lacks(other, one))
    )


def contradiction(one: TextSignature, other: TextSignature) -> str:
    """Why two texts may contradict each other, "" if there is no sign of it. Only a hint."""
    near = jaccard(one.subject, other.subject)
    if near >= SAME_SUBJECT:
        if _opposed(one, other):
            return "opposite verdicts"
        if (-1 in one.leaning) != (-1 in other.leaning) and near >= ALIKE:
            return "one of them says not"
    mine, theirs = one.measures - other.measures, other.measures - one.measures
    if near >= SAME_MEASURE and len(mine) == len(theirs) == 1:
        return f"different numbers: {min(mine)} and {min(theirs)}"
    return ""


def _lacks(one: TextSignature, other: TextSignature) -> bool:
    """Whether `other` names something that `one` does not, in any form."""
    mine = {_stem(word) for word in one.words}
    return any(
        word not in WEAK_WORDS
        and word not in _sides()
        and (len(_stem(word)) < MIN_STEM or _stem(word) not in mine)
        for word in other.words - one.words
    )


def _stem(word: str) -> str:
    return ENDING.sub("", word)


def _signs(text: str) -> set[str]:
    """Characters that are neither letters nor punctuation: + < = € 👍."""
    from unicodedata import category

    others = set(NEITHER.findall(text.replace("!=", "≠")))
    return {sign for sign in others if category(sign) in ("Sc", "Sm", "So")}


def _marked(text: str) -> set[str]:
    """Letters with vowel signs and similar marks, which distinguish words as letters do. Not
    accents and the points of Hebrew and Arabic, which are often left out."""
    from unicodedata import category, combining, normalize

    if text.isascii():
        return set()
    apart = normalize("NFD", text.casefold())
    return {
        letter + mark
        for letter, mark in pairwise(apart)
        if category(mark)[0] == "M"
        and category(letter)[0] in "LM"
        and (combining(mark) in (0, 7, 8, 9) or 84 <= combining(mark) < 200)
    }


def _opposed(one: TextSignature, other: TextSignature) -> bool:
    rows = one.leaning.keys() & other.leaning.keys()
    return any(one.leaning[row] != other.leaning[row] for row in rows)


def _leaning(all_words: list[str]) -> dict[int, bool]:
    """The verdicts in the words; one that follows a negation is reversed."""
    leaning: dict[int, bool] = {}
    for index, word in enumerate(all_words):
        side = _sides().get("enabled" if _turned_on(all_words, index) else word)
        negated = any(before in NEGATIONS for before in all_words[max(index - 3, 0) : index])
        if side is not None:
            leaning.setdefault(side[0], side[1] is not negated)
    if not leaning and any(word in NEGATIONS for word in all_words):
        leaning[-1] = True
    return leaning


def _turned_on(all_words: list[str], index: int) -> bool:
    """Whether this word is the "on" of "turned on" or "is on", and not a preposition."""
    if all_words[index] != "on" or index == 0:
        return False
    before, after = all_words[index - 1], all_words[index + 1 : index + 2]
    return before in TURNED or (before in BEING and after in ([], ["by"]))


@lru_cache(maxsize=1)
def _sides() -> dict[str, tuple[int, bool]]:
    return {
        _singular(word): (row, side == 0)
        for row, sides in enumerate(VERDICTS)
        for side in (0, 1)
        for word in sides[side].split()
    }


@lru_cache(maxsize=1)
def _permutations() -> list[tuple[int, int]]:
    """The same in every process, forever: signatures are stored."""
    from hashlib import blake2b

    numbers = [
        int.from_bytes(blake2b(b"hive %d" % n, digest_size=7).digest(), "big") + 1
        for n in range(2 * BANDS * ROWS)
    ]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _without_accents(text: str) -> str:
    from unicodedata import combining, normalize

    # Capitals without a lower case, like 𝔘, become plain capitals when they are decomposed.
    apart = normalize("NFKD", text.casefold()).casefold()
    return normalize("NFC", "".join(letter for letter in apart if not combining(letter)))


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith(("ies", "ie")):  # queries like query, cookie like cookies
        return word[: word.rindex("ie")] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _letters(word: str) -> list[str]:
    return re.split(f"({WITHOUT_SPACES.pattern})", word)
