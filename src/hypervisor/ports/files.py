"""Files that people share with the program: tasks, what a batch reports, what plans are about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hypervisor.batches.plans.action import Standing, Step
from hypervisor.queue.receipt import Receipt


class TaskFiles(Protocol):
    """The user's Markdown task files: changed by several processes and by their owner at once."""

    def change(self, path: str, edit: Callable[[bytes], bytes]) -> bool:
        """Apply an edit to what the file holds now; False if that changes nothing."""
        ...

    def change_all(
        self, edits: Sequence[tuple[str, Callable[[bytes], bytes]]]
    ) -> list[bool | Exception]:
        """Change many files; what `change` would return or raise, for each."""
        ...

    def append_receipts(self, path: str, receipts: Sequence[Receipt]) -> bool:
        """Add those of a task's receipts that its file does not show yet."""
        ...

    def read(self, path: str) -> bytes: ...


class BatchFiles(Protocol):
    """The folder in which a batch keeps what people read: summaries, details, the report."""

    def folder(self, batch: str) -> str: ...
    def write(self, batch: str, name: str, text: str) -> str:
        """Replace a file at one stroke; returns its path."""
        ...

    def append(self, batch: str, name: str, text: str) -> None:
        """Add to a file that nobody sees before it is finished."""
        ...

    def finish(self, batch: str, name: str) -> str:
        """Let the file be seen; returns its path."""
        ...


class ActionFiles(Protocol):
    """The files that the plans of one batch are about, below the folder it was started in."""

    root: str

    def locate(self, path: str) -> str:
        """The path below the folder, links resolved. InvalidInput: it leads elsewhere."""
        ...

    def facts(self, path: str) -> tuple[str, int] | None:
        """Hash and mode of a plain file, None if nothing is there."""
        ...

    def read(self, path: str) -> bytes: ...
    def origin(self, path: str) -> tuple[int, int, int]:
        """When a file was changed, in nanoseconds, and the user and group that own it."""
        ...

    def missing_folders(self, path: str) -> list[str]:
        """The folders that have to be made before something can be put there."""
        ...

    def look(self, step: Step) -> Standing: ...
    def keep(self, path: str, expected: str) -> None:
        """Keep a file's content by its hash."""
        ...

    def kept(self, content: str) -> bytes: ...
    def carry_out(self, step: Step, tag: str, content: bytes = b"") -> None:
        """Make the step. Changed: the files were not as expected, and are left alone."""
        ...

    def recover(self, step: Step, tag: str) -> None:
        """Clean up behind somebody who died in the middle of a step."""
        ...

    def make_folders(self, folders: Sequence[str]) -> None: ...
    def remove_folders(self, folders: Collection[str]) -> None:
        """Those of them that are empty."""
        ...

    def lock(self, who: str) -> AbstractContextManager[None]:
        """WrongState: somebody else is at work on the plans of this batch."""
        ...
