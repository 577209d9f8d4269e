"""Files that people share with the program: tasks, and what a batch reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

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
