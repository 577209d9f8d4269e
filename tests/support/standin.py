"""A stand-in for agent programs: prints the streams of claude, codex and gemini, and does
what the real ones do, including failures.

Its prompt says what it does: `act-NAME` or `act-NAME-ARGUMENT` anywhere in it. A session is
kept in its HOME, so that a resumed one knows where it was. Its provider is a folder
(STANDIN_PROVIDER): every request is a line in `requests`, and while the time in `limit` is not
over, the answer is 429; while there is a file `down`, it cannot be reached. The programs are in
standins/; this puts them where they are wanted.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

KINDS = ("claude", "codex", "gemini")
PROGRAM = Path(__file__).parent / "standins" / "__main__.py"


def install(folder: Path) -> dict[str, str]:
    """The three programs, by kind; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for kind in KINDS:
        path = folder / f"fake-{kind}"
        words = shlex.join([sys.executable, "-I", "-S", str(PROGRAM), kind])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
        made[kind] = str(path)
    return made


def config(folder: Path, grace: str = "2s", **more: str) -> str:
    """Tables for config.toml: profiles fake-claude, fake-codex and fake-gemini."""
    programs = install(folder / "bin")
    provider = folder / "provider"
    provider.mkdir(exist_ok=True)
    text = ""
    for kind, program in programs.items():
        text += f"""
[agents.fake-{kind}]
like = "{kind}"
program = "{program}"
keys = ["STANDIN_KEY", "STANDIN_SECOND_KEY"]
login = []
provider = "standin-{kind}"
grace = "{grace}"
env = {{ STANDIN_PROVIDER = "{provider}" }}
"""
        text += "".join(f"{name} = {value}\n" for name, value in more.items())
    return text
