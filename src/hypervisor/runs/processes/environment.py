"""The environment an attempt gets: the user's without the store's secrets, and what we add."""

from __future__ import annotations

import os

from hypervisor.core.places import STORE, STORE_SECRETS
from hypervisor.runs.spec import RunSpec

# What a program needs to find its way about; everything else may be a secret.
KEPT_WHEN_CLEAN = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ")


def environment_for(
    spec: RunSpec, given: dict[str, str], batch: str, locks: str = ""
) -> dict[str, str]:
    """`locks` is where those who change task files queue up."""
    env = dict(given)
    # The user may have named the store on the command line; our own environment always does.
    if any("://" in each.get(STORE, "") for each in (given, os.environ)):
        for name in (STORE, *STORE_SECRETS):
            env.pop(name, None)
    if spec.clean_env:
        env = {
            name: value
            for name, value in env.items()
            if name in KEPT_WHEN_CLEAN or name.startswith("LC_")
        }
    return {**env, **attempt_variables(spec, batch, locks)}


def attempt_variables(spec: RunSpec, batch: str, locks: str = "") -> dict[str, str]:
    """What Hypervisor itself says to an attempt about its batch."""
    env = {"HV_BATCH": batch}
    if spec.propose:
        env["HV_PROPOSE"] = "1"
    if spec.write_back != "none":
        env["HV_WRITE_BACK"] = spec.write_back
    if locks:
        env["HV_LOCKS"] = locks
    return env
