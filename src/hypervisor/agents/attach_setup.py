"""Prepares the home of an agent for a terminal: programs that are started there for the first time
ask about themes, keys and trust, which the person has answered by attaching."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.agents.json_fields import member
from hypervisor.agents.mcp_config import write_own

if TYPE_CHECKING:
    from hypervisor.agents.setup import Launch

KEY_TAIL = 20  # characters by which claude remembers a key


def skip_first_questions(stream: str, home: str, launch: Launch) -> None:
    """For programs whose first questions are known."""
    cwd, env = launch.cwd, launch.env
    if stream == "claude":
        _claude(os.path.join(home, ".claude.json"), cwd, env.get("ANTHROPIC_API_KEY", ""))
    elif stream == "codex":
        key = env.get("CODEX_API_KEY") or env.get("OPENAI_API_KEY", "")
        _codex(os.path.join(home, ".codex"), cwd, key)


def forget_key(stream: str, home: str) -> None:
    """Remove a file that `skip_first_questions` has written; not a link to the user's login."""
    path = os.path.join(home, ".codex", "auth.json")
    if stream == "codex" and not os.path.islink(path):
        with suppress(OSError):
            os.unlink(path)


def _claude(path: str, cwd: str, key: str) -> None:
    state: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError), open(path, encoding="utf-8") as file:
        state = member(json.load(file))
    projects = member(state, "projects")
    projects[cwd] = {**member(projects, cwd), "hasTrustDialogAccepted": True}
    answers = {"approved": [key[-KEY_TAIL:]], "rejected": []}
    state |= {"hasCompletedOnboarding": True, "theme": "dark", "projects": projects}
    write_own(path, json.dumps(state | ({"customApiKeyResponses": answers} if key else {})))


def _codex(folder: str, cwd: str, key: str) -> None:
    """In a terminal it reads its key from a file only. The file is removed afterwards."""
    config = os.path.join(folder, "config.toml")
    with open(config, encoding="utf-8") as file:
        text = file.read()
    trusted = f'[projects.{json.dumps(cwd)}]\ntrust_level = "trusted"\n'
    write_own(config, text + trusted)
    login = os.path.join(folder, "auth.json")
    if key and not os.path.lexists(login):
        write_own(login, json.dumps({"OPENAI_API_KEY": key}))
