"""The diff of a file that a plan changes, and how many lines it adds and removes."""

from __future__ import annotations

from collections.abc import Iterator

from hypervisor.batches.plans.action import visible
from hypervisor.core.records import NamedTuple

MAX_SIZE = 500_000  # bytes of a file; no diff is made above that …
MAX_LINES = 5_000  # … nor above this many lines
NO_FILE = "/dev/null"
NO_NEWLINE = "\\ No newline at end of file"


class FileDiff(NamedTuple):
    """`added` and `removed` are None where no lines were compared; `text` then says why."""

    text: str = ""
    added: int | None = None
    removed: int | None = None


def file_diff(before: bytes | None, after: bytes | None, path: str) -> FileDiff:
    """What changes in a file. None: the file does not exist."""
    contents = [content or b"" for content in (before, after)]
    if any(b"\0" in content for content in contents):
        return FileDiff(_sizes("binary file", before, after))
    if any(len(content) > MAX_SIZE or content.count(b"\n") > MAX_LINES for content in contents):
        return FileDiff(_sizes("too large for a diff", before, after))
    from difflib import unified_diff

    old, new = map(_lines, contents)
    name_before = NO_FILE if before is None else f"a/{visible(path)}"
    name_after = NO_FILE if after is None else f"b/{visible(path)}"
    diff = list(unified_diff(old, new, name_before, name_after, lineterm=""))
    added = sum(line.startswith("+") for line in diff[2:])
    removed = sum(line.startswith("-") for line in diff[2:])
    return FileDiff("\n".join(_printed(diff)), added, removed)


def _lines(content: bytes) -> list[str]:
    """With their ends; only a line feed ends one."""
    lines = content.decode("utf-8", "replace").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])


def _sizes(what: str, before: bytes | None, after: bytes | None) -> str:
    if before is None or after is None:
        return f"{what}: {len(before or after or b''):,} bytes"
    return f"{what}: {len(before):,} bytes become {len(after):,}"


def _printed(diff: list[str]) -> Iterator[str]:
    for number, line in enumerate(diff):
        yield line.removesuffix("\n")
        if number > 1 and not line.endswith("\n") and not line.startswith("@@"):
            yield NO_NEWLINE
