"""Where the items come from: files, patterns, folders, mailboxes, a pipe.

A source is read twice, first to check and count, then to add, with the same result. Invalid rows
are counted and left out; they do not stop the others.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

from hypervisor.cli.run.request import ItemOptions
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs import items as reading
from hypervisor.inputs.sources import TABLES, BadLine, guess_format, matching_paths, read_lines
from hypervisor.inputs.template import Item

MAGIC = frozenset("*?[")
FOLDERS = ("maildir", "tasks")
MAX_SHOWN = 20


class Source:
    """The items of `--items`, `--item`, `--format`, `--null` and `--epic`; can be read twice.

    While it is read, `bad` counts the invalid items, and `first_bad` has the place and the
    problem of the first ones.
    """

    def __init__(self, options: ItemOptions) -> None:
        self._stack = ExitStack()
        self._options, self._epic = options, options.epic
        self._null, self._form = options.null, options.format or ("tasks" if self._epic else None)
        self._below: set[str] = set()
        self._names = options.items or (() if options.item else ("-",))
        self.bad = 0
        self.first_bad: list[tuple[str, str]] = []
        self._check()
        self._parts = [self._part(name) for name in self._names]

    def __iter__(self) -> Iterator[Item]:
        self.bad, self.first_bad = 0, []
        for number, item in enumerate(self._all(), 1):
            if more := self._options.columns:
                item = item._replace(columns={**(item.columns or {}), **more})
            yield item if item.number == number else item._replace(number=number)

    def close(self) -> None:
        self._stack.close()

    def _check(self) -> None:
        names, texts = self._options.items, self._options.item
        if self._epic is not None and (self._form != "tasks" or not names or texts):
            raise InvalidInput(
                f"--epic selects Markdown tasks: give their folder, as in `--items tasks "
                f"--epic {self._epic[:40]}`."
            )
        if not names and not texts and sys.stdin.isatty():
            raise InvalidInput("no items: pipe them in, or use --items or --item.")

    def _all(self) -> Iterator[Item]:
        for text in self._options.item:
            if not text:
                raise InvalidInput("--item is empty.")
            yield Item(text)
        if self._epic is not None:
            yield from self._of_epic(self._epic)
            return
        for part in self._parts:
            yield from part(self.leave_out)

    def _of_epic(self, epic: str) -> Iterator[Item]:
        """The tasks below an epic, at any depth; an extra pass finds out which those are."""
        from hypervisor.inputs.task_files.folder import below, parent_of

        if not self._below:
            tasks = (item.columns or {} for part in self._parts for item in part(_not_now))
            self._below = below(epic, tasks)
        is_empty = True
        for part in self._parts:
            for item in part(self.leave_out):
                columns = item.columns or {}
                if columns.get("id") != epic and parent_of(columns) in self._below:
                    is_empty = False
                    yield item
        if is_empty:
            folders = ", ".join(self._names)
            raise InvalidInput(
                f"no task in {folders} has the parent {epic!r}. Nothing was started."
            )

    def leave_out(self, place: str, why: str) -> None:
        self.bad += 1
        if len(self.first_bad) < MAX_SHOWN:
            self.first_bad.append((place, why))

    def _part(self, name: str) -> reading.Reader:
        """The reader for one file, pattern or folder."""
        if MAGIC & set(name):
            return self._pattern(name)
        if name != "-" and (os.path.isdir(name) or self._form in FOLDERS):
            return self._folder(name)
        file, form = self._open(name)
        if form == "tasks":
            return self._listed(file)
        begin, null = file.tell(), self._null
        shown = "standard input" if name == "-" else name
        known = "" if name == "-" and form == "mbox" else shown  # a pipe can only be read once

        def read(bad: reading.OnBadItem) -> Iterator[Item]:
            file.seek(begin)
            try:
                yield from reading.read_items(file, form, null, bad, known)
            except BadLine as error:
                raise InvalidInput(
                    f"{shown}, line {error.line}: {error.problem} Nothing was started."
                ) from None

        return read if form in TABLES else self._once(read)

    def _pattern(self, pattern: str) -> reading.Reader:
        if self._form == "tasks":
            from hypervisor.inputs.task_files.folder import task_items

            return self._once(lambda bad: task_items(matching_paths(pattern, bad), bad))
        if self._form == "mbox":
            from hypervisor.inputs.mail import mailbox_items

            return self._once(lambda bad: mailbox_items(matching_paths(pattern, bad), bad))
        if self._form == "maildir":
            raise InvalidInput(f"{pattern} is a pattern; give each Maildir with its own --items.")
        return self._once(lambda bad: reading.glob_items(pattern, bad))

    def _folder(self, name: str) -> reading.Reader:
        from hypervisor.inputs.mail import is_maildir, maildir_items
        from hypervisor.inputs.task_files.folder import task_items, task_paths

        form = self._form or "tasks"
        if self._form in (None, "mbox") and is_maildir(name):  # both contain mails
            form = "maildir"
        if self._null or form not in FOLDERS:
            option = "--null" if self._null else f"--format {form}"
            raise InvalidInput(f"{name} is a folder; {option} needs a file.")
        if form == "maildir":
            if not is_maildir(name):
                raise InvalidInput(f"{name} is not a Maildir: it has no cur, new and tmp.")
            return self._once(lambda bad: maildir_items(name, bad))
        if os.path.isdir(name) and self._options.paths_only:
            return self._once(lambda bad: reading.checked(map(Item, task_paths(name, bad)), bad))
        if os.path.isdir(name):
            return self._once(lambda bad: task_items(task_paths(name, bad), bad))
        if not os.path.exists(name):
            raise InvalidInput(f"{name} cannot be read: No such file or directory.")
        return self._once(lambda bad: task_items([name], bad))

    def _listed(self, file: IO[bytes]) -> reading.Reader:
        """Task files whose paths are on standard input."""
        from hypervisor.inputs.task_files.folder import task_items

        null = self._null

        def read(bad: reading.OnBadItem) -> Iterator[Item]:
            def on_bad_line(line: int, why: str) -> None:
                bad(f"standard input, line {line}", why)

            lines = read_lines(file, null, on_bad_line, names=True)
            return iter(task_items((path for _, path in lines), bad))

        return self._once(read)

    def _once(self, read: reading.Reader) -> reading.Reader:
        from hypervisor.inputs.read_twice import ReadOnce

        once = ReadOnce(read)
        self._stack.callback(once.close)
        return once

    def _open(self, name: str) -> tuple[IO[bytes], str]:
        from hypervisor.inputs.read_twice import seekable

        try:
            file = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
            self._stack.callback(file.close)
            copy = seekable(file)
        except OSError as error:
            raise InvalidInput(f"{name} cannot be read: {error.strerror}.") from None
        return copy, self._form or ("lines" if name == "-" else guess_format(name))


def _not_now(place: str, why: str) -> None:
    """Ignore bad rows; they are counted by the pass that returns the items."""
