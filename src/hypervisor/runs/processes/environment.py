"""The environment of an attempt: the user's, without the store's secrets, plus our variables."""

from __future__ import annotations

import os

from hypervisor.core.places import STORE, STORE_SECRETS
from hypervisor.runs.spec import AgentSpec, RunSpec

# Programs need these; everything else may be a secret.
KEPT_WHEN_CLEAN = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ")
# They lead from a workspace back to the user's checkout. Git sets these in hooks and aliases: those
# of `git rev-parse --local-env-vars`, without the ones for configuration.
LEADING_BACK = frozenset(
    {
        *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_PREFIX"),
        *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
        *("GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
        *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX"),
        *("PWD", "OLDPWD"),
    }
)


def environment_for(
    spec: RunSpec, user_env: dict[str, str], batch: str, locks: str = ""
) -> dict[str, str]:
    """`locks` is the folder of the locks for changing task files."""
    env = dict(user_env)
    # The user may have named the store on the command line; our own environment always does.
    if any("://" in variables.get(STORE, "") for variables in (user_env, os.environ)):
        for name in (STORE, *STORE_SECRETS):
            env.pop(name, None)
    if spec.workspace not in ("", "project"):
        env = {name: value for name, value in env.items() if name not in LEADING_BACK}
    if not isinstance(spec.work, AgentSpec) and spec.work.clean_env:
        env = {
            name: value
            for name, value in env.items()
            if name in KEPT_WHEN_CLEAN or name.startswith("LC_")
        }
    return {**env, **attempt_variables(spec, batch, locks)}


def attempt_variables(spec: RunSpec, batch: str, locks: str = "") -> dict[str, str]:
    """Hypervisor's own variables."""
    env = {"HV_BATCH": batch}
    if spec.propose:
        env["HV_PROPOSE"] = "1"
    if spec.write_back != "none":
        env["HV_WRITE_BACK"] = spec.write_back
    if locks:
        env["HV_LOCKS"] = locks
    return env
