"""Backing up a store with its outputs while it is in use, and restoring it.

A backup is a tar file: a copy of the database as of one moment, the files next to it, and at the
end a manifest with the size and digest of each. Files are read after the database was copied, so
every output that the copy mentions is there, unless `hv gc` deletes it meanwhile.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

from hypervisor import __version__
from hypervisor.core.errors import InvalidInput, StoreBroken, StoreNewer, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.core.store_path import FILE
from hypervisor.queue.context import Context
from hypervisor.store import schema

FORMAT = 1
MANIFEST = "manifest.json"
KEPT = ("config.toml", "outputs", "batches", "skills")
COMPRESSED = (".gz", ".tgz")
PIECE = 1 << 20


class BackedUp(NamedTuple):
    """What was written to or read from a backup."""

    path: str
    files: int
    bytes: int
    schema: int


def backup(hv: Context, path: str) -> BackedUp:
    """Back up the store and its outputs to a file, also while tasks run."""
    path = os.path.abspath(path)
    if os.path.lexists(path):
        raise WrongState(f"{path} already exists. Nothing was written; choose another name.")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise InvalidInput(f"no such folder: {folder}")
    version = int(hv.store.facts()["schema"])
    with tempfile.TemporaryDirectory(prefix=".hv-backup-", dir=folder) as work:
        copy, partial = os.path.join(work, FILE), os.path.join(work, "backup")
        hv.store.copy_to(copy)
        files = _write(partial, copy, hv.places.data, version, path.endswith(COMPRESSED))
        os.link(partial, path)  # fails if it exists by now
    return BackedUp(path, len(files), sum(size for size, _ in files.values()), version)


def restore_backup(path: str, folder: str) -> BackedUp:
    """Restore a backup into a folder that does not exist or is empty."""
    if os.path.isdir(folder) and os.listdir(folder):
        raise WrongState(
            f"{folder} is not empty: a backup never replaces a store. Move the folder away, then "
            "restore again. Nothing was changed."
        )
    parent = os.path.dirname(os.path.abspath(folder))
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".hv-restore-", dir=parent)
    try:
        manifest = _extract(path, work)
        with suppress(FileNotFoundError):
            os.rmdir(folder)
        os.rename(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sizes = [size for size, _ in manifest["files"].values()]
    return BackedUp(folder, len(sizes), sum(sizes), manifest["schema"])


def _write(
    partial: str, copy: str, data: str, version: int, compressed: bool
) -> dict[str, tuple[int, str]]:
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    files: dict[str, tuple[int, str]] = {}
    with os.fdopen(handle, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz" if compressed else "w") as tar:
            for name, source in ((FILE, copy), *_files(data)):
                if entry := _add(tar, name, source):
                    files[name] = entry
            manifest = {"format": FORMAT, "version": __version__, "schema": version}
            text = json.dumps({**manifest, "files": files}).encode()
            info = tarfile.TarInfo(MANIFEST)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
        file.flush()
        os.fsync(file.fileno())
    return files


def _files(data: str) -> Iterator[tuple[str, str]]:
    """Names and paths. Of copies of repositories, refs come before the objects they need."""
    for name in KEPT:
        path = os.path.join(data, name)
        yield from [(name, path)] if os.path.isfile(path) else sorted(_below(path, name))
    for hub in _hubs(data):
        below = _below(os.path.join(data, hub), hub)
        yield from sorted(below, key=lambda pair: ("/objects/" in pair[0], pair[0]))


def _hubs(data: str) -> list[str]:
    with suppress(OSError):
        names = sorted(os.listdir(os.path.join(data, "git")))
        return [f"git/{name}" for name in names if name.endswith(".git")]
    return []


def _below(folder: str, name: str) -> Iterator[tuple[str, str]]:
    for place, _, files in os.walk(folder):
        inside = os.path.relpath(place, folder)
        prefix = name if inside == "." else f"{name}/{inside}"
        yield from ((f"{prefix}/{file}", os.path.join(place, file)) for file in files)


def _add(tar: tarfile.TarFile, name: str, path: str) -> tuple[int, str] | None:
    """Size and digest; None if the file is gone, or is not a plain file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not os.path.isfile(f"/proc/self/fd/{handle}"):
            return None
        info = tarfile.TarInfo(name)
        info.size, info.mode = os.fstat(handle).st_size, 0o600
        info.mtime = int(os.fstat(handle).st_mtime)
        source = _Measured(file, info.size)
        tar.addfile(info, source)  # type: ignore[arg-type]
        return info.size, source.digest.hexdigest()


class _Measured:
    """Exactly `size` bytes of a file, which may grow or be cut while it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        piece = self._file.read(size).ljust(size, b"\0")
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


def _extract(path: str, folder: str) -> dict[str, Any]:
    """Everything, checked. StoreBroken: not a backup, or not complete."""
    found: dict[str, list[Any]] = {}
    manifest: dict[str, Any] = {}
    try:
        with tarfile.open(path) as tar:
            for info in tar:
                source = tar.extractfile(info) if info.isreg() else None
                if source is None:
                    raise StoreBroken(f"{path} is not a backup of a store. Nothing was changed.")
                if info.name == MANIFEST:
                    manifest = json.loads(source.read())
                else:
                    found[info.name] = [info.size, _unpack(source, folder, info.name, path)]
    except FileNotFoundError:
        raise InvalidInput(f"no such file: {path}") from None
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise StoreBroken(f"{path} cannot be read: {error}. Nothing was changed.") from None
    if manifest.get("files") != found or FILE not in found:
        raise StoreBroken(f"{path} is damaged or incomplete. Nothing was changed.")
    if manifest["format"] > FORMAT or manifest["schema"] > schema.VERSION:
        raise StoreNewer(
            f"{path} was written by Hypervisor {manifest['version']}, which is newer than this "
            "one. Nothing was changed; upgrade, then restore again."
        )
    return manifest


def _unpack(source: IO[bytes], folder: str, name: str, path: str) -> str:
    parts = name.split("/")
    if not name or name.startswith("/") or {"", ".", ".."} & set(parts):
        raise StoreBroken(f"{path} has an unsafe name in it: {name[:80]!r}. Nothing was changed.")
    target = os.path.join(folder, *parts)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    digest = hashlib.sha256()
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while piece := source.read(PIECE):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
