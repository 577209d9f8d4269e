"""The login files of agent programs, as far as they decide whether a key is used, and which.

Each file is read again when it has changed. What cannot be read counts as empty.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from hypervisor.agents.json_fields import Object, member, text

MAX_SIZE = 1 << 20
CODEX = ".codex/auth.json"
# A string, or a comment, or a comma in front of a bracket: only strings are kept.
NOT_JSON = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)


def file_in_home(env: Mapping[str, str], name: str) -> Object:
    """A file with a JSON object, in which comments are allowed, below the user's home."""
    home = env.get("HOME", "")
    if not home:
        return {}
    path = os.path.join(home, name)
    with suppress(OSError):
        status = os.stat(path)
        return _parsed(path, status.st_mtime_ns, status.st_size)
    return {}


@lru_cache(64)
def _parsed(path: str, changed: int, size: int) -> Object:
    """`changed` and `size` are part of the cache key."""
    with suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            content = file.read(MAX_SIZE)
        return json_object(NOT_JSON.sub(lambda found: found[1] or "", content))
    return {}


def json_object(content: str) -> Object:
    with suppress(ValueError, RecursionError):
        return member(json.loads(content))
    return {}


def codex_key(env: Mapping[str, str]) -> str:
    """The key that codex would use. A login by subscription comes before OPENAI_API_KEY, which
    may be meant for other programs."""
    if key := env.get("CODEX_API_KEY"):
        return key
    login = file_in_home(env, CODEX)
    if member(login, "tokens"):
        return ""
    return text(login, "OPENAI_API_KEY") or env.get("OPENAI_API_KEY", "")
