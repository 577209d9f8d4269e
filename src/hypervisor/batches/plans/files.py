"""Carries out the steps of a plan on the files of one folder, and keeps the originals.

Paths are opened below the folder without following any link, so nothing outside can be reached,
even if folders change at the same time. A step is one atomic rename, after which the replaced
content is checked: if the owner has just changed the file, it is put back. Originals are kept
first, by their hash, in `kept` of the batch's folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from hypervisor.batches.plans.action import (
    MAIL_PARTS,
    PLACE,
    REMOVE,
    REPLACE,
    Changed,
    Step,
    StepKind,
    StepStatus,
    mail_parts,
    status_of_step,
    visible,
)
from hypervisor.core.atomic_replace import (
    CREATE,
    OLD,
    PART,
    FileBusy,
    Replacement,
    blocks,
    digest,
    file_hash,
    opened,
    rename_new,
)
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.core.private_folders import make_private_folders

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_READ_SIZE = 16 << 20
NOT_FOR_PLANS = frozenset((".git", ".hypervisor"))
OURS = re.compile(rf"\.hv-.*\.tmp(?:{re.escape(PART)}|{re.escape(OLD)})?")


class ActionFiles:
    """The files below `root`; `own` is the batch's folder, `batches/<name>` next to the store."""

    def __init__(self, root: str, own: str) -> None:
        self.root = os.path.realpath(root)
        self._kept = os.path.join(own, "kept")
        self._own = own
        self._data = os.path.realpath(os.path.join(own, "..", ".."))

    # Looking

    def locate(self, path: str) -> str:
        """The path below the folder, with links resolved; refused if it leads outside."""
        full = os.path.join(self.root, path)
        parent, name = os.path.split(full)
        if name in ("", ".", ".."):
            raise InvalidInput(f"{path!r} is not the path of a file.")
        try:
            real_path = os.path.join(os.path.realpath(parent), name)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path!r} cannot be followed: {error}.") from None
        if not real_path.startswith(os.path.join(self.root, "")):
            raise InvalidInput(f"{path!r} is outside {self.root}.")
        relative = os.path.relpath(real_path, self.root)
        ours = f"{real_path}/".startswith(os.path.join(self._data, ""))
        if ours or not NOT_FOR_PLANS.isdisjoint(relative.split(os.sep)) or OURS.fullmatch(name):
            raise InvalidInput(
                f"{path!r} cannot be part of a plan: it belongs to git or to Hypervisor."
            )
        return relative

    def facts(self, path: str) -> tuple[str, int] | None:
        """Hash and mode of a regular file, None if it does not exist."""
        try:
            with self._parent(path) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise InvalidInput(f"{path!r} is not a regular file.")
                return file_hash(folder, name), stat.S_IMODE(status.st_mode)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"{path!r} cannot be read: {error.strerror}.") from None

    def read(self, path: str) -> bytes:
        with self._parent(path) as (folder, name), opened(folder, name) as file:
            data = b"".join(blocks(file, MAX_READ_SIZE + 1))
        if len(data) > MAX_READ_SIZE:
            raise InvalidInput(f"{path!r} is too large to be edited.")
        return data

    def missing_folders(self, path: str) -> list[str]:
        """The folders that must be created for a path, outermost first."""
        parts = path.split(os.sep)[:-1]
        for depth in range(len(parts), -1, -1):
            if self._is_there(parts[:depth]):
                missing = [os.sep.join(parts[: n + 1]) for n in range(depth, len(parts))]
                return list(dict.fromkeys([*missing, *self._missing_of_mail(parts)]))
        raise NotFound(f"no such folder on this host: {self.root}")

    def _missing_of_mail(self, parts: list[str]) -> list[str]:
        """A Maildir folder, `.Name`, needs all of its three parts."""
        own = mail_parts(os.sep.join(parts))
        try:
            if not own or not all(self._is_there([*parts[:-2], part]) for part in MAIL_PARTS):
                return []
            return [part for part in own if not self._is_there(part.split(os.sep))]
        except (OSError, InvalidInput):  # a part is a link: left as it is
            return []

    def _is_there(self, parts: list[str]) -> bool:
        try:
            os.close(self._open(parts))
        except FileNotFoundError:
            return False
        return True

    def origin(self, path: str) -> tuple[int, int, int]:
        """When a file was changed, in nanoseconds, and the user and group that own it."""
        with self._parent(path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return status.st_mtime_ns, status.st_uid, status.st_gid

    def look(self, step: Step) -> StepStatus:
        """Whether the step was made."""
        at_target = self._hash(step.to) if step.kind == StepKind.MOVE else ""
        return status_of_step(step, self._hash(step.path), at_target)

    # Keeping

    def keep(self, path: str, expected: str) -> None:
        """Keep a copy of a file under its hash, before it is changed."""
        if os.path.exists(os.path.join(self._kept, expected)):
            return
        with self._parent(path) as (folder, name):
            if self._keep(folder, name) != expected:
                raise Changed(f"{visible(path)} has changed since")

    def kept(self, content: str) -> bytes:
        """The content that was kept under a hash."""
        try:
            with open(os.path.join(self._kept, content), "rb") as file:
                data = file.read()
        except OSError as error:
            raise Changed(f"the original {content} is not kept here: {error.strerror}") from None
        if digest(data) != content:
            raise Changed(f"the kept original {content} was changed")
        return data

    # Changing

    def carry_out(self, step: Step, tag: str, content: bytes = b"") -> None:
        """Make the step. Changed: the files are not as `look` found them."""
        try:
            {
                StepKind.MOVE: self._move,
                REPLACE: self._replace,
                PLACE: self._place,
                REMOVE: self._remove,
            }[step.kind](step, tag, content)
        except FileBusy:
            raise Changed(f"{visible(step.path)} is being written by another program") from None
        except FileExistsError:
            raise Changed(f"{visible(step.to or step.path)} already exists") from None
        except FileNotFoundError:
            raise Changed(f"{visible(step.path)} is gone") from None
        except OSError as error:
            raise Changed(f"{visible(step.path)}: {error.strerror}") from None

    def recover(self, step: Step, tag: str) -> None:
        """Clean up after a process that died in the middle of a step."""
        if step.kind == StepKind.MOVE:
            return self._finish_move(step)
        with suppress(FileNotFoundError), self._parent(step.path) as (folder, name):
            replacement = _replacement(folder, name, step, tag)
            if step.kind == REMOVE:
                self._finish_removal(replacement)
            else:
                replacement.recover()
            os.fsync(folder)

    def _finish_removal(self, removed: Replacement) -> None:
        folder, name, spare, before, _ = removed
        if file_hash(folder, spare) == before:
            os.unlink(spare, dir_fd=folder)
        else:
            rename_new(folder, spare, folder, name)

    def make_folders(self, folders: Sequence[str]) -> None:
        for path in folders:
            with self._parent(path) as (folder, name):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
                os.fsync(folder)

    def remove_folders(self, folders: Collection[str]) -> None:
        """Remove the empty ones, innermost first; of a Maildir folder all parts or none."""
        for path in sorted(folders, key=lambda path: -path.count(os.sep)):
            if any(self._holds_something(part) for part in mail_parts(path)):
                continue
            with suppress(OSError, InvalidInput), self._parent(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
                os.fsync(folder)

    def _holds_something(self, path: str) -> bool:
        try:
            folder = self._open(path.split(os.sep))
        except FileNotFoundError:
            return False
        except (OSError, InvalidInput):  # not an empty folder
            return True
        try:
            return bool(os.listdir(folder))
        finally:
            os.close(folder)

    @contextmanager
    def lock(self, owner: str) -> Iterator[None]:
        """Only one process at a time may apply or undo plans of a batch."""
        make_private_folders(self._own)
        handle = os.open(
            os.path.join(self._own, "apply.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 1000, 0).decode("utf-8", "replace")
                raise WrongState(
                    f"{holder or 'another process'} is working on this plan. Nothing was changed; "
                    f"try again when it has finished."
                ) from None
            os.ftruncate(handle, 0)
            text = f"{owner} (process {os.getpid()})"
            os.pwrite(handle, text.encode("utf-8", "replace"), 0)
            yield
        finally:
            os.close(handle)

    def _move(self, step: Step, tag: str, content: bytes) -> None:
        with self._parent(step.path) as (old, name), self._parent(step.to) as (new, target):
            _rename_checked(step, old, name, new, target)
            os.fsync(new)
            os.fsync(old)

    def _finish_move(self, step: Step) -> None:
        """Without renameat2, a move is a link and an unlink: make up for a missing unlink."""
        with (
            suppress(FileNotFoundError, InvalidInput),
            self._parent(step.path) as (old, name),
            self._parent(step.to) as (new, target),
        ):
            there = os.stat(target, dir_fd=new, follow_symlinks=False)
            if os.path.samestat(os.stat(name, dir_fd=old, follow_symlinks=False), there):
                os.unlink(name, dir_fd=old)

    def _replace(self, step: Step, tag: str, content: bytes) -> None:
        with self._parent(step.path) as (folder, name):
            replacement = _replacement(folder, name, step, tag)
            _write(replacement, content, step)
            if not replacement.swap():
                raise Changed(f"{visible(step.path)} has changed since")
            os.fsync(folder)

    def _place(self, step: Step, tag: str, content: bytes) -> None:
        with self._parent(step.path) as (folder, name):
            replacement = _replacement(folder, name, step, tag)
            _write(replacement, content, step)
            try:
                rename_new(folder, replacement.spare + PART, folder, name)
            except OSError:
                replacement.discard()
                raise
            os.fsync(folder)

    def _remove(self, step: Step, tag: str, content: bytes) -> None:
        with self._parent(step.path) as (folder, name):
            spare = _replacement(folder, name, step, tag).spare
            _rename_checked(step, folder, name, folder, spare)
            os.unlink(spare, dir_fd=folder)
            os.fsync(folder)

    def _keep(self, folder: int, name: str) -> str:
        from hashlib import sha256

        make_private_folders(self._kept)
        place = os.open(self._kept, FOLDER)
        temporary = f".{os.getpid()}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place)
            content_hash = sha256()
            with opened(folder, name) as file:
                copy = os.open(temporary, CREATE, 0o600, dir_fd=place)
                with os.fdopen(copy, "wb") as original:
                    for piece in blocks(file):
                        content_hash.update(piece)
                        original.write(piece)
                    original.flush()
                    os.fsync(copy)
            os.rename(temporary, content_hash.hexdigest(), src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)
        finally:
            os.close(place)
        return content_hash.hexdigest()

    def _hash(self, path: str) -> str | None:
        try:
            facts = self.facts(path)
        except InvalidInput:
            return None
        return facts[0] if facts else ""

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The opened parent folder of a path, and the file's name."""
        *parts, name = path.split(os.sep)
        try:
            folder = self._open(parts)
        except FileNotFoundError:
            if not os.path.isdir(self.root):
                raise NotFound(f"no such folder on this host: {self.root}") from None
            raise
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _open(self, parts: list[str]) -> int:
        folder = os.open(self.root, FOLDER)
        for part in parts:
            try:
                inner = os.open(part, FOLDER, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise InvalidInput(f"{part!r} is not a folder.") from None
                raise
            finally:
                os.close(folder)
            folder = inner
        return folder


def _replacement(folder: int, name: str, step: Step, tag: str) -> Replacement:
    return Replacement(folder, name, f".hv-{tag}.tmp", step.before, step.after)


def _write(replacement: Replacement, content: bytes, step: Step) -> None:
    """Write the new file, with its attributes, next to its final path and sync it."""
    handle = replacement.create(content, 0o666 if step.mode is None else 0o600)
    try:
        if step.owner is not None:
            with suppress(PermissionError):  # only root may change the owner
                os.fchown(handle, *step.owner)
        if step.mode is not None:
            os.fchmod(handle, step.mode)
        if step.mtime is not None:
            os.utime(handle, ns=(step.mtime, step.mtime))
        os.fsync(handle)
    except OSError:
        replacement.discard()
        raise
    finally:
        os.close(handle)


def _rename_checked(step: Step, old: int, name: str, new: int, target: str) -> None:
    """Rename a file, and undo that if its content is not as the step expects."""
    rename_new(old, name, new, target)
    try:
        as_planned = file_hash(new, target) == step.before
    except OSError:
        as_planned = False
    if not as_planned:
        rename_new(new, target, old, name)
        raise Changed(f"{visible(step.path)} has changed since")
