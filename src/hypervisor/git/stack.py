"""Puts the commits of a task on top of others, without a checkout.

The same arguments always give the same commits, so an interrupted step can be repeated. Nothing
here moves a ref.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from hypervisor.core.errors import GitFailed
from hypervisor.core.records import NamedTuple
from hypervisor.git.command import IDENTITY, Git

Strategy = Literal["merge", "squash", "rebase"]
DURABLE = ("-c", "core.fsync=committed,loose-object")
ATTRIBUTES = ".gitattributes"
MAX_PATHS, MAX_LINES = 1000, 20
FORMAT = "%an%x00%ae%x00%ad%x00%ct%x00%P%x00%B"  # with --date=raw


class Stacked(NamedTuple):
    """`commit` is `tip` with the change on top. `unchanged`: the tip already has the change."""

    commit: str
    tree: str
    unchanged: bool = False


class Conflict(NamedTuple):
    """The change does not merge. `message` has a line for each conflict, as git describes it."""

    paths: tuple[str, ...]
    message: str


class _Commit(NamedTuple):
    """A commit to be made, or one that was read; dates as git has them."""

    author: tuple[str, str, str]  # name, email, date
    committed: int
    parents: tuple[str, ...]
    message: str


SIDE = _Commit(("Hypervisor", "hypervisor@localhost", "1 +0000"), 1, (), "side of a merge")


def stack(
    hub: Git,
    tip: str,
    head: str,
    *,
    base: str,
    message: str,
    strategy: Strategy = "merge",
) -> Stacked | Conflict:
    """`head` on top of `tip`, as one merge commit, as one plain commit (squash), or commit by
    commit (rebase: those since `base` that are not in `tip`; they keep author and message. With
    merge commits among them, they become one commit)."""
    if hub.succeeds("merge-base", "--is-ancestor", head, tip):
        return Stacked(tip, tree_of(hub, tip), unchanged=True)
    if strategy == "rebase":
        commits = _commits_between(hub, tip, base, head)
        if commits and all(len(commit.parents) == 1 for commit in commits.values()):
            return _rebase(hub, tip, commits)
    merged = _merge(hub, tip, head)
    if isinstance(merged, Conflict):
        return merged
    if merged == tree_of(hub, tip):
        return Stacked(tip, merged, unchanged=True)
    if strategy == "merge":
        return Stacked(merge_commit(hub, merged, tip, head, message), merged)
    return Stacked(_commit(hub, merged, (tip,), head, message), merged)


def merged_tree(hub: Git, ours: str, theirs: str, common: str = "") -> str | Conflict:
    """The tree of a merge. `common`: the commit that both are compared with; by default their
    merge base."""
    return _merge(hub, *(_with_base(hub, common, ours, theirs) if common else (ours, theirs)))


def merge_commit(hub: Git, tree: str, tip: str, head: str, message: str) -> str:
    return _commit(hub, tree, (tip, head), head, message)


def _commit(hub: Git, tree: str, parents: tuple[str, ...], head: str, message: str) -> str:
    """With the author of `head`, and a date that is the same each time."""
    change = _read(hub, head)
    when = max(change.committed, _read(hub, parents[0]).committed)
    return _write(hub, tree, _Commit(change.author, when, parents, message))


def is_merged(hub: Git, head: str, target: str) -> bool:
    """Whether merging `head` into `target` would change nothing: also after a squash or rebase."""
    if hub.succeeds("merge-base", "--is-ancestor", head, target):
        return True
    return _merge(hub, target, head) == tree_of(hub, target)


def tree_of(hub: Git, commit: str) -> str:
    return hub.text("rev-parse", "--verify", "--end-of-options", commit + "^{tree}")


def _merge(hub: Git, ours: str, theirs: str) -> str | Conflict:
    """The tree of the merge."""
    words = (*DURABLE, "merge-tree", "--write-tree", "-z", "--name-only", "--messages")
    with _with_attributes(hub, ours) as git:
        ended = git.run(*words, "--end-of-options", ours, theirs, ok=(0, 1, 128))
    if ended.returncode == 128:
        error = ended.stderr.decode("utf-8", "replace").strip()
        if "unrelated histories" in error:
            return Conflict((), "the commits have no common history with the target")
        raise GitFailed("git merge-tree", error, 128)
    tree, _, rest = ended.stdout.decode("utf-8", "surrogateescape").partition("\0")
    return tree if ended.returncode == 0 else _conflict(rest)


@contextmanager
def _with_attributes(hub: Git, commit: str) -> Iterator[Git]:
    """Git that merges as the .gitattributes at the top of a commit say (`merge=union`). In a bare
    repository it would not read them; so they get a work tree of their own."""
    file = hub.run("cat-file", "blob", f"{commit}:{ATTRIBUTES}", ok=(0, 128))
    if file.returncode or b"merge" not in file.stdout:
        yield hub
        return
    with tempfile.TemporaryDirectory(prefix="hv-merge-") as folder:
        with open(os.path.join(folder, ATTRIBUTES), "wb") as copy:
            copy.write(file.stdout)
        where = {"GIT_DIR": os.path.realpath(hub.folder), "GIT_WORK_TREE": folder}
        settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare"}
        yield Git(folder, env={**where, **settings, "GIT_CONFIG_VALUE_0": "false"})


def _conflict(text: str) -> Conflict:
    names, _, messages = text.partition("\0\0")
    paths = tuple(name for name in names.split("\0") if name)
    lines = [line for line in _messages(messages) if line.startswith("CONFLICT")]
    more = [f"… and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return Conflict(paths[:MAX_PATHS], "\n".join(lines[:MAX_LINES] + more))


def _messages(text: str) -> Iterator[str]:
    """Each is a number, that many paths, a kind, and a line for people."""
    fields = iter(text.split("\0"))
    for number in fields:
        if not number.strip().isdigit():
            return
        for _ in range(int(number) + 1):
            next(fields, "")
        yield next(fields, "").strip()


def _rebase(hub: Git, tip: str, commits: dict[str, _Commit]) -> Stacked | Conflict:
    top, tree, when = tip, tree_of(hub, tip), _read(hub, tip).committed
    for name, commit in commits.items():
        merged = _merge(hub, *_with_base(hub, commit.parents[0], top, name))
        if isinstance(merged, Conflict):
            subject = commit.message.strip().partition("\n")[0]
            return merged._replace(message=f"commit {name[:12]} ({subject}):\n{merged.message}")
        if merged != tree:  # otherwise the target already has it
            when = max(when, commit.committed)
            made = commit._replace(parents=(top,), committed=when)
            top, tree = _write(hub, merged, made), merged
    return Stacked(top, tree, unchanged=top == tip)


def _with_base(hub: Git, base: str, ours: str, theirs: str) -> tuple[str, str]:
    """Two commits with the trees of `ours` and `theirs` whose merge base has the tree of `base`.
    merge-tree can be given the base only since git 2.40."""
    root = _write(hub, tree_of(hub, base), SIDE)
    side = SIDE._replace(parents=(root,))
    one, other = (_write(hub, tree_of(hub, commit), side) for commit in (ours, theirs))
    return one, other


def _commits_between(hub: Git, tip: str, base: str, head: str) -> dict[str, _Commit]:
    """Oldest first."""
    words = ("rev-list", "--reverse", "--topo-order", head, f"^{tip}", f"^{base}")
    return {name: _read(hub, name) for name in hub.text(*words).split()}


def _write(hub: Git, tree: str, commit: _Commit) -> str:
    name, email = IDENTITY["GIT_COMMITTER_NAME"], IDENTITY["GIT_COMMITTER_EMAIL"]
    env = {
        "GIT_AUTHOR_NAME": commit.author[0] or name,
        "GIT_AUTHOR_EMAIL": commit.author[1] or email,
        "GIT_AUTHOR_DATE": f"@{commit.author[2]}",
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
        # Not the clock's: repeated, it must give the same commit.
        "GIT_COMMITTER_DATE": f"@{commit.committed} +0000",
    }
    parents = (word for parent in commit.parents for word in ("-p", parent))
    text = commit.message.encode("utf-8", "surrogateescape").rstrip(b"\n") + b"\n"
    return hub.text(*DURABLE, "commit-tree", *parents, "-F", "-", tree, stdin=text, env=env)


def _read(hub: Git, commit: str) -> _Commit:
    words = ("log", "-1", "--no-show-signature", "--date=raw", f"--format={FORMAT}")
    fields = hub.text(*words, commit, "--").split("\0", 5)
    name, email, date, committed, parents, message = fields
    return _Commit((name, email, date), int(committed), tuple(parents.split()), message)
