"""What a fresh workspace needs to be usable, as [workspace] of config.toml says: ignored files,
caches as copies that share their blocks where the disk can do that, and commands to run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO

from hypervisor.git.repository import Repository
from hypervisor.git.work_tree import Limits, in_words
from hypervisor.git.workspace import Workspace
from hypervisor.runs.config import WorkspaceSettings

INCLUDE_FILE = ".worktreeinclude"
FICLONE = 0x40049409
MAX_PLAIN_COPY = 256 << 20  # bytes of a cache that are copied where blocks cannot be shared
LOOK = 1.0  # seconds


@dataclass(frozen=True)
class Brought:
    """`paths` are in the workspace now; `skipped` says what is not, and why."""

    paths: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """`exit_code` None: it took too long and was killed."""

    command: str
    exit_code: int | None

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


def bring_files(
    repository: Repository,
    workspace: Workspace,
    recipe: WorkspaceSettings,
    limits: Limits | None = None,
) -> Brought:
    """Copy the user's ignored files and caches into a workspace. Nothing in it is replaced. They
    may be secret, so they never get into snapshots or commits, whatever becomes of .gitignore."""
    if repository.bare:
        return Brought()
    limits = limits or Limits()
    paths, skipped, total = [], [], 0
    files = ignored_files(repository, recipe.include)
    if files or recipe.caches:
        workspace.keep_out((*files, *recipe.caches))  # first: we may be killed
    for path in files:
        source = os.path.join(repository.root, path)
        size = os.lstat(source).st_size
        if size > limits.file or total + size > limits.total:
            skipped.append(f"{path}: {in_words(size)} is too large")
        elif _copy_file(source, os.path.join(workspace.folder, path)):
            total += size
            paths.append(path)
    for path in recipe.caches:
        why = _bring_cache(
            os.path.join(repository.root, path), os.path.join(workspace.folder, path)
        )
        paths += [] if why else [path]
        skipped += [f"{path}: {why}"] if why else []
    return Brought(tuple(paths), tuple(skipped))


def run_commands(
    commands: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    output: str,
    *,
    timeout: float,
    look: Callable[[], None] = lambda: None,
) -> list[Ran]:
    """Run shell commands in a workspace, until one fails; what they print is added to a file.
    `look` is called every second; if it raises, the command ends."""
    results: list[Ran] = []
    for command in commands:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "ab", buffering=0) as file:
            file.write(f"$ {command}\n".encode("utf-8", "replace"))
            results.append(_run(command, folder, env, file, timeout=timeout, look=look))
        if not results[-1].succeeded:
            break
    return results


def _run(
    command: str,
    folder: str,
    env: Mapping[str, str],
    file: FileIO,
    *,
    timeout: float,
    look: Callable[[], None],
) -> Ran:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=file,
        start_new_session=True,
    )
    deadline = time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return Ran(command, process.wait(LOOK))
            look()
        file.write(f"killed after {timeout:g} s\n".encode())
        return Ran(command, None)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ignored_files(repository: Repository, include: Sequence[str]) -> list[str]:
    """Files that match a pattern and that git ignores."""
    patterns = [f"--exclude={pattern}" for pattern in include]
    listed = os.path.join(repository.root, INCLUDE_FILE)
    if os.path.isfile(listed):
        patterns.append(f"--exclude-from={listed}")
    if not patterns:
        return []
    git = repository.git(with_user_config=True)
    words = ("ls-files", "-z", "--others", "--ignored")
    matching = [path for path in git.names(*words, *patterns) if not path.endswith("/")]
    stdin = b"".join(os.fsencode(path) + b"\0" for path in matching)
    checked = git.run("check-ignore", "-z", "--stdin", stdin=stdin, ok=(0, 1)).stdout
    ignored = set(os.fsdecode(checked).split("\0"))
    return [path for path in matching if path in ignored and not path.startswith(".hypervisor/")]


def _bring_cache(source: str, target: str) -> str:
    """Why not, or ""."""
    if not os.path.isdir(source) or os.path.islink(source):
        return "not a folder"
    if os.path.lexists(target):
        return "already there"
    shares = _can_share(source, os.path.dirname(target))
    size = 0 if shares else _size(source)
    if size > MAX_PLAIN_COPY:
        return f"this disk cannot share blocks, and {in_words(size)} is too much to copy"
    spare = f"{target}.{os.getpid()}.part"
    try:
        copy = _clone_file if shares else shutil.copy2
        shutil.copytree(source, spare, symlinks=True, copy_function=copy)
        os.rename(spare, target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(spare, ignore_errors=True)
        return f"cannot be copied: {error}"
    return ""


def _can_share(source: str, folder: str) -> bool:
    """Tested with one of its files."""
    for here, _, names in os.walk(source):
        for name in names:
            path = os.path.join(here, name)
            if os.path.isfile(path) and not os.path.islink(path):
                os.makedirs(folder, exist_ok=True)
                probe = os.path.join(folder, f".probe.{os.getpid()}")
                try:
                    return _share(path, probe)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(probe)
    return False


def _clone_file(source: str, target: str) -> str:
    if not _share(source, target):
        shutil.copyfile(source, target)
    shutil.copystat(source, target)
    return target


def _share(source: str, target: str) -> bool:
    """Whether the file is now a copy that shares its blocks."""
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            return False
    return True


def _copy_file(source: str, target: str) -> bool:
    if os.path.lexists(target):
        return False
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
    return True


def _size(folder: str) -> int:
    total = 0
    for here, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(here, name)).st_size for name in names)
    return total
