"""A unified diff as files of lines. Long files and lock files are folded: their lines are sent on
request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hypervisor.core.records import NamedTuple

MAX_LINES = 5_000  # of one file
MAX_OPEN = 400  # a longer file is folded
MAX_OPEN_TOTAL = 2_000
FOLDED = (
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "Cargo.lock",
    "poetry.lock",
    "uv.lock",
    "Gemfile.lock",
    "composer.lock",
    "npm-shrinkwrap.json",
    "go.sum",
)
MAX_LINE = 1_000  # characters
NOTED = ("Binary ", "rename ", "similarity ", "new file", "deleted file")


class DiffLine(NamedTuple):
    kind: str  # added, removed, hunk or same
    text: str


class DiffFile(NamedTuple):
    path: str
    added: int | None
    removed: int | None
    lines: tuple[DiffLine, ...]
    folded: bool  # its lines are left out
    left_out: int  # lines of a very long file


def files_of(
    text: str, wanted: str = "", counts: Mapping[str, tuple[int | None, int | None]] = {}
) -> list[DiffFile]:
    """The files of a diff; the lines of `wanted` are included however long it is."""
    files, shown = [], 0
    for path, raw in _split(text):
        fold = is_lock_file(path) or len(raw) > MAX_OPEN or shown + len(raw) > MAX_OPEN_TOTAL
        lines = () if fold and path != wanted else tuple(map(_line, raw[:MAX_LINES]))
        shown += len(lines)
        added, removed = counts.get(path) or _count(raw)
        left_out = max(len(raw) - MAX_LINES, 0) if lines else 0
        files.append(DiffFile(path, added, removed, lines, not lines, left_out))
    return files


def is_lock_file(path: str) -> bool:
    return path.rpartition("/")[2].lower() in [name.lower() for name in FOLDED]


def lines_of(text: str) -> tuple[tuple[DiffLine, ...], int]:
    """The lines of the only file of a diff, and how many are left out."""
    for _, raw in _split(text):
        return tuple(map(_line, raw[:MAX_LINES])), max(len(raw) - MAX_LINES, 0)
    return (), 0


def shown_at_once(counts: Iterable[tuple[str, int | None, int | None]]) -> list[bool]:
    """Of these files (path, lines added, lines removed), which are shown without being asked for:
    short ones, until there are too many lines."""
    shown, left = [], MAX_OPEN_TOTAL
    for path, added, removed in counts:
        lines = (added or 0) + (removed or 0)
        fits = added is not None and lines <= min(MAX_OPEN, left) and not is_lock_file(path)
        left -= lines if fits else 0
        shown.append(fits)
    return shown


def short_diff_lines(text: str) -> tuple[DiffLine, ...]:
    """The lines of a short diff of one file, without its head."""
    lines = text.split("\n") if text else []
    return tuple(_line(line) for line in lines if not line.startswith(("--- ", "+++ ")))


def _split(text: str) -> Iterator[tuple[str, list[str]]]:
    path, lines, in_hunk = "", list[str](), False
    for line in text.split("\n"):
        if line.startswith("diff --git ") or (line.startswith("--- ") and not in_hunk and lines):
            if path:
                yield path, lines
            path, lines, in_hunk = _git_path(line), [], False
        elif not in_hunk and line.startswith("+++ "):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("b/")
        elif not in_hunk and line.startswith("--- "):
            path = path or line[4:].partition("\t")[0].removeprefix("a/")
        elif line.startswith("@@"):
            in_hunk = True
            lines.append(line)
        elif (in_hunk and line) or line.startswith(NOTED):
            lines.append(line)
    if path:
        yield path, lines


def _git_path(line: str) -> str:
    if not line.startswith("diff --git "):
        return line[4:].partition("\t")[0].removeprefix("a/")
    return line.rpartition(" b/")[2]


def _line(text: str) -> DiffLine:
    kind = {"+": "added", "-": "removed", "@": "hunk"}.get(text[:1], "same")
    return DiffLine(kind, text[:MAX_LINE])


def _count(lines: list[str]) -> tuple[int, int]:
    added = sum(line.startswith("+") for line in lines)
    return added, sum(line.startswith("-") for line in lines)
