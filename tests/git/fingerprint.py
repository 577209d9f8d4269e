"""Everything about a repository that must not change while we work with it."""

from __future__ import annotations

import os
import stat
from hashlib import sha256

# What merging into a branch adds to a repository: objects, and branches below hv/.
LANDED = (".git/objects", ".git/refs/heads/hv", ".git/logs/refs/heads/hv")


def fingerprint(root: str | os.PathLike[str], *but: str) -> dict[str, str]:
    """Each file below a checkout with its type, mode and content, .git included: refs, index,
    stash, reflogs, configuration and working tree. Left out are our own .hypervisor folder and the
    folders `but`. Compare two of them with ==: pytest then shows which file differs."""
    top = os.fspath(root)
    ignored = {os.path.join(top, name) for name in (".hypervisor", *but)}
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if os.path.join(folder, name) not in ignored)
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = _of(path)
    return found


def _of(path: str) -> str:
    facts = os.lstat(path)
    mode = stat.filemode(facts.st_mode)
    if stat.S_ISLNK(facts.st_mode):
        return f"{mode} -> {os.readlink(path)}"
    if not stat.S_ISREG(facts.st_mode):
        return mode
    with open(path, "rb") as file:
        return f"{mode} {sha256(file.read()).hexdigest()}"
