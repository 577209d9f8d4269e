"""Carrying out the steps of a plan on the files of one folder, and keeping what they replace.

Whatever is named is looked for below the folder without following a single link, so nothing
outside can be reached, however the folders change meanwhile. A step is one atomic rename,
after which it is looked at what was really replaced: if its owner was quicker, it is put
back. Originals are kept first, by their hash, in `kept` of the batch's folder.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.domain.action import (
    DONE,
    MOVE,
    PLACE,
    REMOVE,
    REPLACE,
    Changed,
    Standing,
    Step,
    standing,
    visible,
)
from hypervisor.domain.errors import InvalidInput, NotFound, WrongState

PIECE = 1 << 20
NO_REPLACE, EXCHANGE = 1, 2  # renameat2
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LARGEST_READ = 16 << 20


class ActionFiles:
    """The files below `root`; `own` is the batch's folder, `data` what no plan may touch."""

    def __init__(self, root: str, own: str, data: str) -> None:
        self.root = os.path.realpath(root)
        self._kept = os.path.join(own, "kept")
        self._own = own
        self._data = os.path.realpath(data)

    # Looking

    def locate(self, path: str) -> str:
        """The path below the folder, links on the way resolved; refused if it leads outside."""
        full = os.path.join(self.root, path)
        parent, name = os.path.split(full)
        if name in ("", ".", ".."):
            raise InvalidInput(f"{path!r} names no file.")
        try:
            found = os.path.join(os.path.realpath(parent), name)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path!r} cannot be followed: {error}.") from None
        if not found.startswith(os.path.join(self.root, "")):
            raise InvalidInput(f"{path!r} lies outside {self.root}.")
        if f"{found}/".startswith(os.path.join(self._data, "")):
            raise InvalidInput(f"{path!r} belongs to the store.")
        relative = os.path.relpath(found, self.root)
        if ".git" in relative.split(os.sep):
            raise InvalidInput(f"{path!r} belongs to git.")
        return relative

    def facts(self, path: str) -> tuple[str, int] | None:
        """Hash and mode of a plain file, None if nothing is there."""
        with self._parent(path) as (folder, name):
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInput(f"{path!r} is no plain file.")
            return _hash_at(folder, name), stat.S_IMODE(found.st_mode)

    def read(self, path: str) -> bytes:
        with self._parent(path) as (folder, name), _opened(folder, name) as file:
            data = b"".join(_pieces(file, LARGEST_READ + 1))
        if len(data) > LARGEST_READ:
            raise InvalidInput(f"{path!r} is too large to be edited.")
        return data

    def missing_folders(self, path: str) -> list[str]:
        """The folders that have to be made before something can be put there, outermost first."""
        parts = path.split(os.sep)[:-1]
        for depth in range(len(parts), -1, -1):
            try:
                os.close(self._open(parts[:depth]))
            except FileNotFoundError:
                continue
            return [os.sep.join(parts[: n + 1]) for n in range(depth, len(parts))]
        raise NotFound(f"there is no folder {self.root} here.")

    def mtime(self, path: str) -> int:
        with self._parent(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns

    def look(self, step: Step) -> Standing:
        """Whether the step was made."""
        at_target = self._hash(step.to) if step.kind == MOVE else ""
        return standing(step, self._hash(step.path), at_target)

    # Keeping

    def keep(self, path: str, expected: str) -> None:
        """Keep a file's content by its hash, before anything happens to it."""
        if os.path.exists(os.path.join(self._kept, expected)):
            return
        with self._parent(path) as (folder, name):
            if self._keep(folder, name) != expected:
                raise Changed(f"{visible(path)} has changed meanwhile")

    def kept(self, content: str) -> bytes:
        """What was kept under that hash."""
        from hashlib import sha256

        try:
            with open(os.path.join(self._kept, content), "rb") as file:
                data = file.read()
        except OSError as error:
            raise NotFound(f"the original {content} is not kept here: {error.strerror}.") from None
        if sha256(data).hexdigest() != content:
            raise Changed(f"the kept original {content} was changed")
        return data

    # Changing

    def carry_out(self, step: Step, tag: str, content: bytes = b"") -> None:
        """Make the step, whose files must be as `look` found them. Changed: they were not."""
        try:
            {MOVE: self._move, REPLACE: self._replace, PLACE: self._place, REMOVE: self._remove}[
                step.kind
            ](step, tag, content)
        except FileExistsError:
            raise Changed(f"{visible(step.to or step.path)} is there already") from None
        except FileNotFoundError:
            raise Changed(f"{visible(step.path)} is gone") from None
        except OSError as error:
            raise Changed(f"{visible(step.path)}: {error.strerror}") from None

    def recover(self, step: Step, tag: str) -> None:
        """Clean up behind somebody who died in the middle of a step."""
        if step.kind == MOVE:
            return
        name = _temporary(tag)
        with suppress(FileNotFoundError), self._parent(step.path) as (folder, target):
            aside = _hash_at(folder, name)
            if step.kind == REPLACE and aside not in (step.before, step.after):
                if self._hash(step.path) == step.after:  # not what we meant to replace
                    _swap(folder, name, target)
                else:
                    self._keep(folder, name)
            if step.kind == REMOVE and aside != step.before:
                _rename_new(folder, name, folder, target)
                return
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def make_folders(self, folders: list[str]) -> None:
        for each in folders:
            with self._parent(each) as (folder, name):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
                os.fsync(folder)

    def remove_folders(self, folders: list[str]) -> None:
        """Those of them that are empty, innermost first."""
        for each in sorted(folders, key=lambda path: -path.count(os.sep)):
            with suppress(OSError, InvalidInput), self._parent(each) as (folder, name):
                os.rmdir(name, dir_fd=folder)
                os.fsync(folder)

    @contextmanager
    def lock(self, who: str) -> Iterator[None]:
        """One process at a time carries out or undoes the plans of a batch."""
        os.makedirs(self._own, mode=0o700, exist_ok=True)
        handle = os.open(
            os.path.join(self._own, "apply.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.pread(handle, 1000, 0).decode("utf-8", "replace")
                raise WrongState(
                    f"{other or 'another process'} is at work on this plan. Nothing was changed; "
                    "wait for it."
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, who.encode("utf-8", "replace"), 0)
            yield
        finally:
            os.close(handle)

    def _move(self, step: Step, tag: str, content: bytes) -> None:
        with self._parent(step.path) as (old, name), self._parent(step.to) as (new, target):
            _rename_new(old, name, new, target)
            if _hash_at(new, target) != step.before:
                _rename_new(new, target, old, name)
                raise Changed(f"{visible(step.path)} has changed meanwhile")
            os.fsync(new)
            os.fsync(old)

    def _replace(self, step: Step, tag: str, content: bytes) -> None:
        temporary = _temporary(tag)
        with self._parent(step.path) as (folder, name):
            _write(folder, temporary, content, step)
            _swap(folder, temporary, name)
            if _hash_at(folder, temporary) != step.before:
                _swap(folder, temporary, name)
                os.unlink(temporary, dir_fd=folder)
                raise Changed(f"{visible(step.path)} has changed meanwhile")
            os.unlink(temporary, dir_fd=folder)
            os.fsync(folder)

    def _place(self, step: Step, tag: str, content: bytes) -> None:
        temporary = _temporary(tag)
        with self._parent(step.path) as (folder, name):
            _write(folder, temporary, content, step)
            try:
                _rename_new(folder, temporary, folder, name)
            except OSError:
                os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def _remove(self, step: Step, tag: str, content: bytes) -> None:
        temporary = _temporary(tag)
        with self._parent(step.path) as (folder, name):
            _rename_new(folder, name, folder, temporary)
            if _hash_at(folder, temporary) != step.before:
                _rename_new(folder, temporary, folder, name)
                raise Changed(f"{visible(step.path)} has changed meanwhile")
            os.unlink(temporary, dir_fd=folder)
            os.fsync(folder)

    def _keep(self, folder: int, name: str) -> str:
        from hashlib import sha256

        os.makedirs(self._kept, mode=0o700, exist_ok=True)
        place = os.open(self._kept, FOLDER)
        temporary = f".{os.getpid()}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place)
            seen = sha256()
            copy = os.open(temporary, FRESH, 0o600, dir_fd=place)
            with os.fdopen(copy, "wb") as kept, _opened(folder, name) as file:
                for piece in _pieces(file):
                    seen.update(piece)
                    kept.write(piece)
                kept.flush()
                os.fsync(kept.fileno())
            os.rename(temporary, seen.hexdigest(), src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)
        finally:
            os.close(place)
        return seen.hexdigest()

    def _hash(self, path: str) -> str | None:
        try:
            found = self.facts(path)
        except InvalidInput:
            return None
        return found[0] if found else ""

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The opened folder in which a path ends, and the last name."""
        *parts, name = path.split(os.sep)
        try:
            folder = self._open(parts)
        except FileNotFoundError:
            if not os.path.isdir(self.root):
                raise NotFound(f"there is no folder {self.root} here.") from None
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
                    raise InvalidInput(f"{part!r} is no folder.") from None
                raise
            finally:
                os.close(folder)
            folder = inner
        return folder


def _temporary(tag: str) -> str:
    return f".hv-{tag}.tmp"


@contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    handle = os.open(name, FILE, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _pieces(handle: int, most: int = 1 << 62) -> Iterator[bytes]:
    while most > 0 and (piece := os.read(handle, min(PIECE, most))):
        most -= len(piece)
        yield piece


def _hash_at(folder: int, name: str) -> str:
    from hashlib import sha256

    seen = sha256()
    with _opened(folder, name) as file:
        for piece in _pieces(file):
            seen.update(piece)
    return seen.hexdigest()


def _write(folder: int, name: str, content: bytes, step: Step) -> None:
    """A new file beside the one it shall become, on the disk before it does."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    handle = os.open(name, FRESH, 0o666 if step.mode is None else 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        if step.mode is not None:
            os.fchmod(handle, step.mode)
        if step.mtime is not None:
            os.utime(handle, ns=(step.mtime, step.mtime))
        os.fsync(handle)


def _swap(folder: int, one: str, other: str) -> None:
    """Exchange two files, or where the file system cannot, put the first over the other,
    with a second name for what it replaces."""
    if _renameat2(folder, one, folder, other, EXCHANGE):
        return
    aside = f"{one}.old"
    with suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=folder)
    os.link(other, aside, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.rename(one, other, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(aside, one, src_dir_fd=folder, dst_dir_fd=folder)


def _rename_new(old: int, name: str, new: int, target: str) -> None:
    """Rename without ever replacing what is there."""
    if not _renameat2(old, name, new, target, NO_REPLACE):
        os.link(name, target, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
        os.unlink(name, dir_fd=old)


def _renameat2(old: int, name: str, new: int, target: str, flags: int) -> bool:
    """False if this system or file system has no such call."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is None:
        return False
    if call(old, os.fsencode(name), new, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), name)
