"""What all parsers share: reading values of uncertain kind, and telling trouble by its words."""

from __future__ import annotations

import json
import re
from typing import Any

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble

LONGEST_LINE = 16 << 20  # characters; a longer line is not even looked at
LONGEST_TEXT = 4_000
LONGEST_SAID = 1 << 20
LONGEST_NOW = 200
LONGEST_SESSION = 200
MOST_DENIED = 50
MOST = 1 << 50

Object = dict[str, Any]


def object_in(line: str) -> Object | None:
    """The JSON object that a line is, None if it is none."""
    line = line.strip()
    if not line.startswith("{") or len(line) > LONGEST_LINE:
        return None
    try:
        found = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_number(name: str) -> Any:
    raise ValueError(name)  # NaN and its like are no JSON, and no store takes them


def member(value: Any, *path: str) -> Object:
    """The object at a path; {} where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: Any, name: str) -> list[Object]:
    """The objects of a list member."""
    found = value.get(name) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def count(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return 0
    return int(found) if 0 <= found < MOST else 0  # NaN is neither


def amount(value: Any, name: str) -> float | None:
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return float(found) if 0 <= found < MOST else None


def storable(value: str, longest: int = LONGEST_TEXT) -> str:
    """A text that any database takes: no NUL, no half of a surrogate pair."""
    return value[:longest].replace("\0", "").encode("utf-8", "replace").decode()


def with_session(heard: Heard, session: str) -> Heard:
    session = storable(session.strip(), LONGEST_SESSION)
    return heard._replace(session=session) if session else heard


def with_said(heard: Heard, said: str) -> Heard:
    said = storable(said, LONGEST_SAID)
    return heard._replace(said=said, now=one_line(said)) if said.strip() else heard


def with_denied(heard: Heard, name: str) -> Heard:
    if len(heard.denied) >= MOST_DENIED:
        return heard
    return heard._replace(denied=(*heard.denied, storable(name, LONGEST_NOW) or "a tool"))


def doing(heard: Heard, what: str) -> Heard:
    return heard._replace(now=one_line(what))


def one_line(value: str) -> str:
    line = " ".join(value[: 10 * LONGEST_NOW].split())
    line = "".join(c if c.isprintable() else "·" for c in line)
    return line if len(line) <= LONGEST_NOW else line[: LONGEST_NOW - 1] + "…"


def added(one: Tokens, other: Tokens) -> Tokens:
    return Tokens(one.input + other.input, one.output + other.output, one.cached + other.cached)


def since(total: Tokens, before: Tokens) -> Tokens:
    """A sum over the session without what earlier runs had used."""
    return Tokens(
        max(total.input - before.input, 0), max(total.output - before.output, 0),
        max(total.cached - before.cached, 0),
    )  # fmt: skip


# Trouble by its HTTP status, else by its words; the first that fits.
_BY_STATUS = {400: kinds.REQUEST, 401: kinds.AUTH, 402: kinds.QUOTA, 403: kinds.AUTH,
              404: kinds.REQUEST, 413: kinds.REQUEST, 422: kinds.REQUEST, 429: kinds.QUOTA,
              503: kinds.OVERLOAD, 529: kinds.OVERLOAD}  # fmt: skip
_WORDS = (
    (kinds.RESUME, r"no (?:previous )?(?:conversation|session|rollout|saved session)s? (?:was )?"
     r"found|(?:session|thread|conversation)\b.{0,80}\b(?:not found|does not exist)|"
     r"no (?:saved )?session|error resuming session|no session, task, or name matched"),
    (kinds.QUOTA, r"\(429\)|\b429 |rate.?limit|too many requests|RESOURCE_EXHAUSTED|usage limit|"
     r"\bquota\b|hit your (?:\S+ )?limit|limit reached|"
     r"insufficient.{0,12}(?:balance|credit|funds)"),
    (kinds.OVERLOAD, r"\(?529\)? |overloaded|over capacity|at capacity|high demand|UNAVAILABLE\b"),
    (kinds.AUTH, r"unauthori[sz]ed|UNAUTHENTICATED|invalid.{0,10}api.?key|incorrect api key|"
     r"api key not valid|authentication|not logged in|please (?:run /)?log ?in|"
     r"must specify the \w+ environment variable|set an auth method|no authentication"),
    (kinds.TURNS, r"max(?:imum)?.{0,20} turns|turn limit"),
    (kinds.NETWORK, r"ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|"
     r"connection (?:refused|reset|closed|error|dropped|to the API was lost)|unable to connect|"
     r"fetch failed|socket (?:hang up|connection was closed)|error sending request|"
     r"network error|transport error|\bterminated\b|premature close|cannot connect to api|"
     r"other side closed|connection_failed"),
    (kinds.STREAM, r"stream disconnected|without a finish reason|stream ended|in the stream"),
    (kinds.SERVER, r"internal server error|server_error|bad gateway|server had an error"),
    (kinds.REQUEST, r"bad request|invalid_request|invalid request|INVALID_ARGUMENT|"
     r"model.{0,40}(?:not found|does not exist|not supported)"),
)  # fmt: skip
_PATTERNS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS)
_STATUS = re.compile(
    r"(?:status(?: code)?|HTTP|API Error|Last error|\bcode|rejected)\W{0,4}([45]\d\d)\b",
    re.IGNORECASE,
)
_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"|retry in (\d+(?:\.\d+)?)s\b')


def kind_of(status: int | None, words: str, otherwise: str = kinds.OTHER) -> str:
    """What kind of trouble it is. A refused key comes as 400 from some providers."""
    found = _BY_STATUS.get(status or 0)
    if found == kinds.REQUEST or found is None:
        told = _kind_by_words(words) if status is None or found == kinds.REQUEST else ""
        if found is None or told in (kinds.AUTH, kinds.RESUME):
            found = told or found
    if found is None and status is not None and status >= 500:
        found = kinds.SERVER
    return found or (kinds.REQUEST if status and 400 <= status < 500 else otherwise)


def _kind_by_words(words: str) -> str:
    return next((kind for kind, words_ in _PATTERNS if words_.search(words[:LONGEST_TEXT])), "")


def status_in(words: str) -> int | None:
    found = _STATUS.search(words[:LONGEST_TEXT])
    return int(found[1]) if found else None


def trouble(
    words: str,
    status: int | None = None,
    reset_at: int | None = None,
    retry_after: int | None = None,
    retrying: bool = False,
    otherwise: str = kinds.OTHER,
) -> Trouble:
    """Trouble told in these words; what they do not tell is worked out from them."""
    words = storable(words)
    status = status if status and 100 <= status < 1000 else status_in(words)
    if reset_at is None and retry_after is None:
        found = _DELAY.search(words)
        retry_after = round(float(found[1] or found[2]) * 1000) if found else None
    kind = kind_of(status, words, otherwise)
    return Trouble(kind, words, status, reset_at, retry_after, retrying)


def with_trouble(heard: Heard, found: Trouble) -> Heard:
    """The latest trouble; what an earlier word about the same one told besides is kept."""
    old = heard.trouble
    if old is not None and old.kind == found.kind:
        found = found._replace(status=found.status or old.status)
        if found.reset_at is None and found.retry_after is None and not old.retrying:
            found = found._replace(reset_at=old.reset_at, retry_after=old.retry_after)
        elif found.reset_at is None and old.reset_at is not None:
            found = found._replace(reset_at=old.reset_at, retry_after=None)
    return heard._replace(trouble=found, now=one_line(found.text) or heard.now)
