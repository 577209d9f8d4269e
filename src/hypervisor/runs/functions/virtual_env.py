"""The interpreter that a user's functions are called with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def active_python(function: str, environment: Mapping[str, str]) -> str | None:
    """The Python of the active virtual environment; None where that is our own.

    A program installed by pipx or uv has an environment of its own, without the user's packages.
    Functions that come with Hypervisor need ours.
    """
    folder = environment.get("VIRTUAL_ENV", "")
    if not folder or function.startswith("hypervisor."):
        return None
    python = os.path.join(os.path.abspath(folder), "bin", "python")
    is_own = os.path.realpath(folder) == os.path.realpath(sys.prefix)
    return python if not is_own and os.access(python, os.X_OK) else None
