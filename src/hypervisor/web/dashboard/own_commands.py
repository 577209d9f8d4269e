"""Runs `hv` itself: what a page starts is exactly what a person would type (decision 0094)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from hypervisor.core.errors import HypervisorError
from hypervisor.core.places import STORE
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context

PROGRAM = "from hypervisor.app import main; main()"
SECONDS = 120  # for the command; the run continues in the background


class Failed(HypervisorError):
    """With the code and the message of the command."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CommandAnswer(NamedTuple):
    values: dict[str, Any]
    notes: tuple[str, ...]  # its lines on stderr


def run_hv(hv: Context, arguments: Sequence[str], folder: str, stdin: str = "") -> CommandAnswer:
    """The answer of a command with `--json`. Failed: it refused; the message is its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM, *arguments],
            cwd=folder,
            env={**os.environ, STORE: hv.launcher.where},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            start_new_session=True,  # Ctrl-C of the dashboard is not meant for it
        )
    except subprocess.TimeoutExpired:
        raise Failed("unexpected", f"no answer for {SECONDS} seconds; use the terminal") from None
    except (OSError, ValueError) as error:
        raise Failed("unexpected", f"cannot start the command: {error}") from None
    notes = tuple(line.removeprefix("hv: ") for line in done.stderr.splitlines() if line.strip())
    return CommandAnswer(_values(done.stdout, notes), notes)


def _values(text: str, notes: Sequence[str]) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        raise Failed("invalid_input", (*notes, "no answer")[0]) from None
    if error := values.get("error"):
        raise Failed(error["code"], error["message"])
    return dict(values)
