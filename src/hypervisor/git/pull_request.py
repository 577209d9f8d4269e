"""Pull requests through the programs of the forges: gh (GitHub) and glab (GitLab)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hypervisor.core.records import NamedTuple

TIMEOUT = 120.0  # seconds
TRIES, PAUSE = 5, 1.0  # a forge may take a moment to show what was pushed
NEITHER = (
    "pull requests need gh (https://cli.github.com) or glab (https://gitlab.com/gitlab-org/cli), "
    "and neither is installed; install one, or use --merge push or --merge branch"
)


class PullRequest(NamedTuple):
    title: str
    body: str


class _Dialect(NamedTuple):
    """How a program lists the open pull requests of a branch, and the names of its fields."""

    listing: tuple[str, ...]
    head: str
    url: str


GH = _Dialect(("pr", "list", "--state", "open", "--json", "url,headRefOid"), "headRefOid", "url")
GLAB = _Dialect(("mr", "list", "--output", "json"), "sha", "web_url")


class Forge:
    """`program`: the path of gh or glab."""

    def __init__(self, program: str, repository: str) -> None:
        self._program, self._repository = program, repository
        self._gitlab = os.path.basename(program) == "glab"
        self._dialect = GLAB if self._gitlab else GH

    def open(
        self, branch: str, target: str, commit: str, pull_request: PullRequest
    ) -> tuple[str, str]:
        """Open a pull request for a branch, or find the open one. Returns its address, and why it
        does not show the commit, if so."""
        url, problem = "", ""
        for attempt in range(TRIES):
            existing = self._find(branch)
            if isinstance(existing, str):
                return "", existing
            if existing is None and attempt == 0:
                ended = self._run(*self._creation(branch, target, pull_request))
                problem = "" if ended.returncode == 0 else _message(ended)
            elif existing is not None:
                url = str(existing.get(self._dialect.url, ""))
                if existing.get(self._dialect.head) == commit:
                    return url, ""
            if problem:
                return "", f"the pull request was not created: {problem}"
            if attempt:
                time.sleep(PAUSE)
        return url, f"the pull request {url or 'of this branch'} does not show {commit[:12]}"

    def _find(self, branch: str) -> dict[str, Any] | str | None:
        """The open pull request of a branch, None, or what went wrong."""
        option = "--source-branch" if self._gitlab else "--head"
        ended = self._run(*self._dialect.listing, option, branch)
        if ended.returncode:
            return f"pull requests cannot be listed: {_message(ended)}"
        try:
            listed = json.loads(ended.stdout or b"[]")
            return next((each for each in listed if isinstance(each, dict)), None)
        except (ValueError, TypeError):
            return f"{self._program} printed something that is not JSON"

    def _creation(self, branch: str, target: str, pull_request: PullRequest) -> Sequence[str]:
        title, body = pull_request
        if self._gitlab:
            branches = ["--source-branch", branch, "--target-branch", target]
            text = ["--title", title, "--description", body or title]
            return ["mr", "create", "--yes", *branches, *text]
        return [
            "pr",
            "create",
            "--head",
            branch,
            "--base",
            target,
            "--title",
            title,
            "--body",
            body,
        ]

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """With the user's environment: it is their login."""
        quiet = {"GH_PROMPT_DISABLED": "1", "NO_COLOR": "1", "NO_PROMPT": "1"}
        with subprocess.Popen(
            [self._program, *words],
            cwd=self._repository,
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = b"", f"no answer within {TIMEOUT:g} s".encode()
        return subprocess.CompletedProcess(words, process.returncode, out, err)


def find_forge(repository: str, url: str) -> Forge | str:
    """The program for a remote; or a message if none is installed."""
    names = ["glab", "gh"] if "gitlab" in url.lower() else ["gh", "glab"]
    if "github.com" in url.lower():
        names = ["gh"]
    program = next((path for name in names if (path := shutil.which(name))), None)
    return Forge(program, repository) if program else NEITHER


def _message(ended: subprocess.CompletedProcess[bytes]) -> str:
    text = (ended.stderr or ended.stdout).decode("utf-8", "replace")
    return " ".join(text.split())[-300:] or f"exit code {ended.returncode}"
