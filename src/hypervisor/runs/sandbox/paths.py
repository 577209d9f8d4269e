"""Finds the paths of an attempt: what is hidden, what its programs need, what it may change."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.sandbox.plan import HIDDEN_SYSTEM, is_below, without_nested
from hypervisor.runs.sandbox.words import PACKAGE, PYTHON

MAX_LINKS = 8
BINS = ("bin", ".bin")
SHALLOW = 2  # ~/.local and ~/.cargo hold more than programs; ~/.nvm/versions/node/v22 does not


def user_homes(user_env: Mapping[str, str]) -> tuple[str, ...]:
    homes = [user_env.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(home) for home in homes if home not in ("", "/")))


def hidden_paths(homes: Iterable[str], data: str) -> tuple[str, ...]:
    """Those that exist. What is inside of another one is kept: it may be in a visible part."""
    paths = (*HIDDEN_SYSTEM, *homes, data)
    real = dict.fromkeys(os.path.realpath(path) for path in paths)
    return tuple(path for path in real if os.path.isdir(path))


def project_root(cwd: str, homes: Iterable[str]) -> str:
    """The repository that the folder is in, or the folder. InvalidInput: it contains a home."""
    cwd = os.path.realpath(cwd)
    root, folder = cwd, cwd
    while folder not in ("/", *homes):
        if os.path.exists(os.path.join(folder, ".git")):
            root = folder
            break
        folder = os.path.dirname(folder)
    if root == "/" or any(home == root or is_below(home, root) for home in homes):
        raise InvalidInput(
            f"{root} contains your home, which a sandbox has to hide; run it in another folder"
        )
    return root


def guarded_in(root: str) -> tuple[str, ...]:
    """Files of a repository that make git run programs later, as the user."""
    names = (".git/hooks", ".git/config")
    return tuple(path for name in names if os.path.exists(path := os.path.join(root, name)))


def borrowed_objects(root: str, data: str) -> tuple[str, ...]:
    """The objects that a clone of ours shares. An attempt can change that list: only folders of
    our hubs are taken from it."""
    hubs = os.path.join(os.path.realpath(data), "git")
    with (
        suppress(OSError),
        open(os.path.join(root, ".git/objects/info/alternates"), encoding="utf-8") as file,
    ):
        paths = [os.path.realpath(line.strip()) for line in file.read(10_000).splitlines()]
        return tuple(
            path
            for path in paths
            if os.path.dirname(os.path.dirname(path)) == hubs and path.endswith(".git/objects")
        )
    return ()


def needed_to_run(programs: Iterable[str], path: str, hidden: Iterable[str]) -> tuple[str, ...]:
    """Paths inside of hidden folders that programs need: folders on PATH, where the programs
    really are, our scripts, the resolver's configuration."""
    hidden = tuple(hidden)
    found: list[str] = [PACKAGE, os.path.realpath(sys.base_prefix), "/etc/resolv.conf"]
    for folder in path.split(":"):
        if os.path.isabs(folder) and os.path.isdir(folder):
            found.append(_installation(folder))
    for program in (PYTHON, *programs):
        found += _chain(program)
    real = {os.path.realpath(entry) for entry in found} | {
        entry for entry in found if not os.path.islink(entry)
    }
    inside = [p for p in real if any(is_below(p, outer) for outer in hidden)]
    return without_nested(p for p in inside if os.path.exists(p) and p not in hidden)


def _chain(program: str) -> Iterator[str]:
    """Where a program is: each link on the way, and the interpreter of a script."""
    for _ in range(MAX_LINKS):
        if not os.path.isabs(program) or not os.path.exists(program):
            return
        real = os.path.realpath(program)
        yield from (_around(program), _around(real))
        with suppress(OSError), open(real, "rb") as file:
            first = file.readline(500)
        if not first.startswith(b"#!"):
            return
        program = os.fsdecode(first[2:].split()[0]) if first[2:].split() else ""


def _around(program: str) -> str:
    """The folder that a program was installed in, or the program alone."""
    folder = os.path.dirname(program)
    parts = program.split("/")
    if "node_modules" in parts:
        return "/".join(parts[: parts.index("node_modules") + 1])
    return _installation(folder) if os.path.basename(folder) in BINS else program


def _installation(folder: str) -> str:
    """/home/me/.nvm/versions/node/v22 for its bin; a bin near the home stays alone."""
    parent = os.path.dirname(folder)
    if os.path.basename(folder) not in BINS:
        return folder
    home = os.path.realpath(os.path.expanduser("~"))
    depth = os.path.relpath(parent, home).count("/") + 1 if is_below(parent, home) else SHALLOW
    return parent if depth >= SHALLOW and parent.count("/") >= SHALLOW else folder
