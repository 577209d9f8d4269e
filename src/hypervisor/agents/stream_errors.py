"""Classifies errors of providers and agents by their HTTP status and text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_state import MAX_TEXT_LENGTH, ErrorKind, StreamError, storable

# The kind of an error, by its HTTP status, else by its text; the first match counts.
_BY_STATUS = {
    400: kinds.REQUEST,
    401: kinds.AUTH,
    402: kinds.BILLING,
    403: kinds.ACCESS,
    404: kinds.REQUEST,
    413: kinds.REQUEST,
    422: kinds.REQUEST,
    429: kinds.QUOTA,
    503: kinds.OVERLOAD,
    529: kinds.OVERLOAD,
}
_PATTERNS = (
    (
        kinds.RESUME,
        r"no (?:previous )?(?:conversation|session|rollout|saved session)s? (?:was )?"
        r"found|(?:session|thread|conversation)\b.{0,80}\b(?:not found|does not exist)|"
        r"no (?:saved )?session|error resuming session|no session, task, or name matched",
    ),
    (
        kinds.BILLING,
        r"credit balance is too low|insufficient.{0,12}(?:balance|credit|funds)|"
        r"payment required|out of credits|quota exceeded\. check your plan",
    ),
    (
        kinds.QUOTA,
        r"\(429\)|\b429 |rate.?limit|too many requests|RESOURCE_EXHAUSTED|usage limit|"
        r"\bquota\b|hit your (?:\S+ )?limit|limit reached",
    ),
    (kinds.OVERLOAD, r"\(?529\)? |overloaded|over capacity|at capacity|high demand|UNAVAILABLE\b"),
    (
        kinds.AUTH,
        r"unauthori[sz]ed|UNAUTHENTICATED|invalid.{0,10}api.?key|incorrect api key|"
        r"api key not valid|authentication|not logged in|please (?:run /)?log ?in|"
        r"must specify the \w+ environment variable|set an auth method|no authentication",
    ),
    (
        kinds.ACCESS,
        r"plan does(?: not|n't) include|not (?:included in|available on) your plan|"
        r"PERMISSION_DENIED",
    ),
    (kinds.TURNS, r"max(?:imum)?.{0,20} turns|turn limit"),
    (
        kinds.NETWORK,
        r"ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|"
        r"failed to lookup address|name does not resolve|getaddrinfo|waiting for network|"
        r"connection (?:refused|reset|closed|error|dropped|to the API was lost)|unable to connect|"
        r"fetch failed|socket (?:hang up|connection was closed)|error sending request|"
        r"network error|transport error|\bterminated\b|premature close|cannot connect to api|"
        r"other side closed|connection_failed",
    ),
    (
        kinds.STREAM,
        r"stream disconnected|without a finish reason|stream ended|in the stream|"
        r"in JSON at position|JSON parse error|unexpected end of JSON|not valid JSON",
    ),
    (kinds.SERVER, r"internal server error|server_error|bad gateway|server had an error"),
    (
        kinds.REQUEST,
        r"bad request|invalid_request|invalid request|INVALID_ARGUMENT|"
        r"model.{0,40}(?:not found|does not exist|not supported)",
    ),
)
# Ambiguous statuses, and the kinds that the text may decide on.
_VAGUE: Mapping[ErrorKind, tuple[ErrorKind, ...]] = {
    kinds.REQUEST: (kinds.AUTH, kinds.RESUME, kinds.BILLING, kinds.ACCESS),
    kinds.ACCESS: (kinds.AUTH, kinds.BILLING),
}
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)
_STATUS = re.compile(
    r"(?:status(?: code)?|HTTP|API Error|Last error|\bcode|rejected)\W{0,4}([45]\d\d)\b",
    re.IGNORECASE,
)
_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"|retry in (\d+(?:\.\d+)?)s\b')


def stream_error(
    text: str,
    status: int | None = None,
    *,
    reset_at: int | None = None,
    retry_after: int | None = None,
    retrying: bool = False,
    otherwise: ErrorKind = kinds.OTHER,
) -> StreamError:
    """An error with this text, from which missing values are derived."""
    text = storable(text)
    status = status if status and 100 <= status < 1000 else _status_in(text)
    if reset_at is None and retry_after is None and (delay := _DELAY.search(text)):
        retry_after = round(float(delay[1] or delay[2]) * 1000)
    kind = _kind_of(status, text, otherwise)
    return StreamError(kind, text, status, reset_at, retry_after, retrying)


def parse_retry_after(header: str) -> tuple[int | None, int | None]:
    """A Retry-After header: a time since 1970, or a time to wait, both in milliseconds."""
    header = header.strip()
    if header.isascii() and header.isdecimal() and len(header) < 9:
        return None, int(header) * 1000
    from email.utils import parsedate_to_datetime  # rarely needed, and large

    try:
        return round(parsedate_to_datetime(header).timestamp() * 1000), None
    except (ValueError, OverflowError):
        return None, None


def _kind_of(status: int | None, text: str, otherwise: ErrorKind) -> ErrorKind:
    """Some providers refuse a key with 400 or 403, and a lack of credit with 400."""
    by_status = _BY_STATUS.get(status or 0)
    by_text = _kind_by_text(text) if status is None or by_status in _VAGUE else None
    if by_text is not None and (by_status is None or by_text in _VAGUE[by_status]):
        return by_text
    if by_status is not None:
        return by_status
    if status is not None and status >= 400:
        return kinds.SERVER if status >= 500 else kinds.REQUEST
    return otherwise


def _kind_by_text(text: str) -> ErrorKind | None:
    return next(
        (kind for kind, pattern in _COMPILED if pattern.search(text[:MAX_TEXT_LENGTH])), None
    )


def _status_in(text: str) -> int | None:
    match = _STATUS.search(text[:MAX_TEXT_LENGTH])
    return int(match[1]) if match else None
