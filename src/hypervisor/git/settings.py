"""The part of the user's git configuration that also applies in the hub and in workspaces: line
endings,
file modes, their identity, and which files git ignores. Nothing that starts a program, and no
credentials.
"""

from __future__ import annotations

import os
import shutil

from hypervisor.core.errors import GitFailed
from hypervisor.git.command import IDENTITY
from hypervisor.git.files import write_file
from hypervisor.git.repository import Repository

SETTINGS = "hv-settings"
EXCLUDE = os.path.join("info", "exclude")
ATTRIBUTES = os.path.join("info", "attributes")
CARRIED = (
    *("core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.ignorecase"),
    *("core.precomposeunicode", "core.quotepath", "core.longpaths", "user.name", "user.email"),
)
LFS = """\
[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
[lfs]
\tstorage = {storage}
\tlocksverify = false
"""


def carry_over(repository: Repository, hub: str) -> None:
    """Update the hub's copy of the user's settings."""
    values = _values(repository)
    values.setdefault("user.name", IDENTITY["GIT_AUTHOR_NAME"])
    values.setdefault("user.email", IDENTITY["GIT_AUTHOR_EMAIL"])
    text = "".join(map(_line, values.items()))
    if shutil.which("git-lfs") is not None:  # without effect unless .gitattributes ask for it
        storage = os.path.join(hub, "lfs")
        text += LFS.format(storage=quoted(storage))
        _link_files(os.path.join(repository.common_dir, "lfs", "objects"), f"{storage}/objects")
    _write_if_changed(os.path.join(hub, SETTINGS), text)
    exclude = _read(_excludes_file(repository)) + _read(
        os.path.join(repository.common_dir, EXCLUDE)
    )
    _write_if_changed(os.path.join(hub, EXCLUDE), exclude)
    attributes = _read(os.path.join(repository.common_dir, ATTRIBUTES))
    _write_if_changed(os.path.join(hub, ATTRIBUTES), attributes)


def quoted(value: str) -> str:
    """A value as it stands in a configuration file of git."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _line(setting: tuple[str, str]) -> str:
    (section, name), value = setting[0].split("."), setting[1]
    return f"[{section}]\n\t{name} = {quoted(value)}\n"


def _values(repository: Repository) -> dict[str, str]:
    git = repository.git(with_user_config=True)
    pattern = f"^({'|'.join(name.replace('.', '[.]') for name in CARRIED)})$"
    out = git.run("config", "-z", "--get-regexp", pattern, ok=(0, 1)).stdout
    fields = out.decode("utf-8", "surrogateescape").split("\0")
    pairs = (field.partition("\n") for field in fields if field)
    return {name: value if has_value else "true" for name, has_value, value in pairs}


def _excludes_file(repository: Repository) -> str:
    git = repository.git(with_user_config=True)
    try:
        path = git.run("config", "--type=path", "--get", "core.excludesFile", ok=(0, 1)).stdout
    except GitFailed:  # for example ~nobody/ignore
        return ""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.fsdecode(path.rstrip(b"\n")) or os.path.join(home, "git", "ignore")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError:
        return ""
    return text if text.endswith("\n") or not text else text + "\n"


def _write_if_changed(path: str, text: str) -> None:
    if not os.path.exists(path) or _read(path) != text:
        write_file(path, text)


def _link_files(source: str, target: str) -> None:
    """Hard links to files whose names are their content, or copies on another file system."""
    for folder, _, names in os.walk(source):
        there = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(there, exist_ok=True)
        for name in names:
            link_or_copy(os.path.join(folder, name), os.path.join(there, name))


def link_or_copy(source: str, target: str) -> None:
    if os.path.exists(target):
        return
    try:
        os.link(source, target)
    except FileNotFoundError:
        return
    except OSError:
        spare = f"{target}.{os.getpid()}.part"
        shutil.copyfile(source, spare)
        os.replace(spare, target)
