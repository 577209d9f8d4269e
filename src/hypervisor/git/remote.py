"""A remote of the user's repository, reached from the hub with the user's credentials.

The user's own remote-tracking branches stay as they are.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from hypervisor.core.errors import GitFailed, InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.git.command import Git

TIMEOUT = 300.0  # seconds
HEADS = "refs/heads/"
# What of the repository's own configuration it takes to reach a remote.
REACHING = r"^(credential|http|https|ssh|url)\.|^core\.sshcommand$|^remote\..*\.proxy"
TRIES = 5
# As one pack: if it is killed, the hub has all objects of a commit or does not have the commit.
WHOLE = ("-c", "fetch.unpackLimit=1")


class Unreachable(NamedTuple):
    """The remote does not answer. Nothing is known to have changed; try again later."""

    reason: str


class Remote:
    def __init__(self, hub: Git, repository: str, name: str) -> None:
        self._hub, self._repository, self.name = hub, repository, name

    @cached_property
    def url(self) -> str:
        return self._url("--push")

    def fetch(self, branch: str) -> str | Unreachable | None:
        """The tip of a branch as the remote shows it now, present in the hub; None: no such
        branch."""
        words = (
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
        )
        try:
            for _ in range(TRIES):
                tip = self._ask(branch)
                if tip is None or self._hub.commit_of(tip):
                    return tip
                self._git.run(*WHOLE, *words, "--", self.url, HEADS + branch)
        except GitFailed as error:
            return Unreachable(f"cannot reach {self.name}: {_last_line(error.message)}")
        return Unreachable(f"{branch} at {self.name} keeps changing while it is being fetched")

    def _ask(self, branch: str) -> str | None:
        lines = self._git.text("ls-remote", "--quiet", "--", self.url, HEADS + branch).splitlines()
        pairs = (line.split("\t", 1) for line in lines)
        return next((commit for commit, ref in pairs if ref == HEADS + branch), None)

    def push(self, branch: str, expected_old: str | None, commit: str) -> tuple[bool, str]:
        """Whether the remote says that it took it, and what it printed if not."""
        lease = f"--force-with-lease={HEADS}{branch}:{expected_old or ''}"
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        try:
            ended = self._git.run(
                *("push", *options, lease, "--", self.url, f"{commit}:{HEADS}{branch}"), ok=(0, 1)
            )
        except GitFailed as error:
            return False, _last_line(error.message)
        return ended.returncode == 0, _rejection(ended.stdout, ended.stderr)

    @cached_property
    def _git(self) -> Git:
        return Git(self._hub.folder, network=True, timeout=TIMEOUT, env=self._settings())

    def _settings(self) -> dict[str, str]:
        """In the environment, not in the arguments, which everyone can read."""
        users = Git(self._repository)
        words = ("config", "--local", "--includes", "-z", "--get-regexp", REACHING)
        fields = users.run(*words, ok=(0, 1)).stdout.decode("utf-8", "surrogateescape")
        pairs = [field.partition("\n") for field in fields.split("\0") if field]
        env = {"GIT_CONFIG_COUNT": str(len(pairs))}
        for number, (key, _, value) in enumerate(pairs):
            env[f"GIT_CONFIG_KEY_{number}"], env[f"GIT_CONFIG_VALUE_{number}"] = key, value
        return env

    def _url(self, *options: str) -> str:
        users = Git(self._repository, network=True)
        try:
            url = users.text("remote", "get-url", *options, "--", self.name)
        except GitFailed as error:
            raise InvalidInput(f"{self._repository}: {error.message}") from None
        path = os.path.join(self._repository, url)
        return path if "://" not in url and os.path.isdir(path) else url


def _rejection(out: bytes, err: bytes) -> str:
    """The reason for a rejection, with what the remote's hooks have printed."""
    remote = re.findall(r"^remote: ?(.*?)\s*$", err.decode("utf-8", "replace"), re.MULTILINE)
    flags = re.findall(r"^!\t[^\t]*\t(.*)$", out.decode("utf-8", "replace"), re.MULTILINE)
    return " ".join([*flags, *(line for line in remote if line)])[:500] or "push failed"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
    return (telling or lines or ["no answer"])[0].removeprefix("fatal: ")
