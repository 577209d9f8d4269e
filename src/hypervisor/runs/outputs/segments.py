"""Outputs in object storage: `outputs/<task>/<attempt>/<start>-<end>.gz`, compressed pieces that
never change.

Object storage cannot append, so an output is a sequence of segments. Two processes may seal the
same bytes, for example after a crash: their segments overlap with the same content.
"""

from __future__ import annotations

import gzip
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.extras import install_command
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SEGMENT = 1 << 20  # bytes before compression
LEVEL = 6
TIMEOUT, PATIENCE, RETRIES = timedelta(seconds=20), timedelta(seconds=15), 3


class Segment(NamedTuple):
    start: int
    end: int
    key: str


class Segments:
    """The output store at a URL. Every call raises OSError if it cannot be reached."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store: Any = None

    def seal(self, task: str, attempt: int, start: int, text: bytes) -> int:
        """Store the bytes of an output from `start` on; returns where they end."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        for at in range(0, len(text), SEGMENT):
            piece = text[at : at + SEGMENT]
            key = _key(task, attempt, start + at, start + at + len(piece))
            try:
                obstore.put(self._opened(), key, gzip.compress(piece, LEVEL), mode="create")
            except AlreadyExistsError:
                pass  # sealed before a crash
            except (BaseError, OSError) as error:
                raise _unreachable(self.url, error) from error
        return start + len(text)

    def of(self, task: str, attempt: int) -> list[Segment]:
        """The segments of an output that continue each other from its first byte on."""
        found = sorted(self._keys(_prefix(task, attempt)), key=lambda s: (s.start, -s.end))
        chosen: list[Segment] = []
        for segment in found:
            end = chosen[-1].end if chosen else 0
            if segment.start <= end < segment.end:
                chosen.append(segment)
        return chosen

    def read(self, segment: Segment) -> bytes:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return gzip.decompress(bytes(obstore.get(self._opened(), segment.key).bytes()))
        except (BaseError, OSError, EOFError) as error:
            raise _unreachable(self.url, error) from error

    def remove(self, outputs: Iterable[tuple[str, int]]) -> None:
        import obstore
        from obstore.exceptions import BaseError

        keys = [s.key for task, attempt in outputs for s in self._keys(_prefix(task, attempt))]
        try:
            if keys:
                obstore.delete(self._opened(), keys)
        except FileNotFoundError:
            pass  # another host removes them, too
        except (BaseError, OSError) as error:
            raise _unreachable(self.url, error) from error

    def _keys(self, prefix: str) -> list[Segment]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            pages = list(obstore.list(self._opened(), prefix))
        except FileNotFoundError:
            return []
        except (BaseError, OSError) as error:
            raise _unreachable(self.url, error) from error
        names = [object["path"] for page in pages for object in page]
        return [segment for name in names if (segment := _parsed(name)) is not None]

    def _opened(self) -> Any:
        if self._store is None:
            self._store = open_object_store(self.url)
        return self._store


def open_object_store(url: str) -> Any:
    """The object store at a URL; credentials come from the environment, as its own tools take
    them."""
    try:
        from obstore.store import LocalStore, from_url
    except ImportError:
        command = install_command("objects")
        raise StoreUnavailable(f"object storage needs obstore: {command}") from None
    if url.startswith("file://"):
        return LocalStore(url.removeprefix("file://"), mkdir=True)
    options: Any = {"timeout": TIMEOUT, "connect_timeout": TIMEOUT}
    if url.startswith("s3://"):
        import os

        options["allow_http"] = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    retry: Any = {"max_retries": RETRIES, "retry_timeout": PATIENCE}
    opened: Any = from_url  # its overloads name the settings of each kind of store
    return opened(url, client_options=options, retry_config=retry)


def _prefix(task: str, attempt: int) -> str:
    return f"outputs/{task}/{attempt}"


def _key(task: str, attempt: int, start: int, end: int) -> str:
    return f"{_prefix(task, attempt)}/{start:012d}-{end:012d}.gz"


def _parsed(key: str) -> Segment | None:
    name, dot, _ = key.rpartition("/")[2].partition(".gz")
    start, _, end = name.partition("-")
    return Segment(int(start), int(end), key) if dot and (start + end).isdigit() else None


def _unreachable(url: str, error: Exception) -> OSError:
    lines = str(error).strip().splitlines()
    return OSError(f"cannot use the output store {url}: {lines[0] if lines else type(error)}")
