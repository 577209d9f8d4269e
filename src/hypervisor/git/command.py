"""Runs git: the only module that starts it.

Hooks, signing, fsmonitor, prompts and background maintenance are off, the user's and the system's
configuration are not read unless asked for, and messages are in English. A program that takes too
long is killed. Text from tasks only ever reaches git as an argument after `--end-of-options`, or as
a checked ref name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache

from hypervisor.core.errors import GitFailed, GitUnusable, InvalidInput

MIN_VERSION = (2, 38)  # merge-tree --write-tree
TIMEOUT = 600.0  # seconds
MAX_MESSAGE_LENGTH = 500
OFF = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "push.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "protocol.ext.allow=never",
)
IDENTITY = {
    "GIT_AUTHOR_NAME": "Hypervisor",
    "GIT_AUTHOR_EMAIL": "hypervisor@localhost",
    "GIT_COMMITTER_NAME": "Hypervisor",
    "GIT_COMMITTER_EMAIL": "hypervisor@localhost",
}
KEPT = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
# Only paths of this machine: the configuration of an agent's repository may name anything else.
ALONE = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nonexistent",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_LAZY_FETCH": "1",
}
# What talking to a remote may need of the user's environment; only the supervisor's side does.
NETWORK = (
    *("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GIT_SSH_COMMAND", "GIT_SSH"),
    *("XDG_CONFIG_HOME", "http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
# As git check-ref-format has it, for names without a leading refs/; no starting dash either.
BAD_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/.]|/\.|[/.]$|\.lock(/|$)|^@$|^$")


class Git:
    """Git in one folder: a work tree, or a bare repository."""

    def __init__(
        self,
        folder: str,
        *,
        env: Mapping[str, str] | None = None,
        network: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        """`network`: with the user's configuration and credentials, to reach a remote."""
        self.folder, self.timeout = folder, timeout
        self._env = {**_environment(network), **(env or {})}

    def run(
        self,
        *words: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        ok: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git; GitFailed unless it exits with one of `ok`."""
        argv = [program(), *(word for setting in OFF for word in ("-c", setting)), *words]
        patience = timeout or self.timeout
        try:
            ended = _run(argv, self.folder, {**self._env, **(env or {})}, stdin, patience)
        except subprocess.TimeoutExpired:
            raise GitFailed(_what(words), f"took longer than {patience:g} s") from None
        except OSError as error:
            raise GitFailed(_what(words), f"{self.folder}: {error.strerror}") from None
        if ended.returncode not in ok:
            raise GitFailed(_what(words), _message(ended), ended.returncode)
        return ended

    def text(
        self, *words: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """What git prints, without the line break at its end."""
        out = self.run(*words, stdin=stdin, env=env).stdout
        return out.decode("utf-8", "surrogateescape").rstrip("\n")

    def names(self, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
        """What git prints with -z: names, each ended by a NUL."""
        out = self.run(*words, env=env).stdout.decode("utf-8", "surrogateescape")
        return [name for name in out.split("\0") if name]

    def succeeds(self, *words: str, env: Mapping[str, str] | None = None) -> bool:
        """Whether git says yes (exits with 0) or no (1); GitFailed for anything else."""
        return self.run(*words, env=env, ok=(0, 1)).returncode == 0

    def commit_of(self, revision: str) -> str | None:
        """The id of the commit that a revision names; None if it names none, or several."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
        ended = self.run(*words, ok=(0, 1, 128))
        name = ended.stdout.decode("utf-8", "replace").strip()
        return name if name.isalnum() else None  # a range gives two, one with a ^


def check_ref_name(name: str) -> str:
    """The name, if it may be that of a branch."""
    if BAD_REF.search(name) or len(os.fsencode(name)) > 200:
        raise InvalidInput(f"invalid branch name {name[:80]!r}")
    return name


@cache
def program() -> str:
    """The path of git; GitUnusable if it is missing or too old."""
    path = shutil.which("git")
    if path is None:
        raise GitUnusable("git is not installed; workspaces need git 2.38 or newer")
    out = subprocess.run(
        [path, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=30
    ).stdout.decode("utf-8", "replace")
    version = tuple(map(int, re.findall(r"\d+", out)[:2]))
    if version < MIN_VERSION:
        number = ".".join(map(str, version)) or "of an unknown version"
        raise GitUnusable(f"git {number} is too old; workspaces need git 2.38 or newer")
    return path


def _environment(network: bool) -> dict[str, str]:
    names = (*KEPT, *NETWORK) if network else KEPT
    kept = {name: os.environ[name] for name in names if name in os.environ}
    alone = {} if network else ALONE
    return {
        "PATH": os.defpath,
        **kept,
        **alone,
        **IDENTITY,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "true",
        "LC_ALL": "C",
    }


def _run(
    argv: list[str], folder: str, env: dict[str, str], stdin: bytes | None, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """In a session of its own: what git has started ends with it when it takes too long."""
    with subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _what(words: Sequence[str]) -> str:
    """The subcommand, for messages: its arguments may hold anything."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-c", "-C") else 1
    return f"git {words[at]}" if at < len(words) else "git"


def _message(ended: subprocess.CompletedProcess[bytes]) -> str:
    text = (ended.stderr or ended.stdout).decode("utf-8", "replace").strip()
    return text[-MAX_MESSAGE_LENGTH:] or f"exit code {ended.returncode}"
