"""Finds an agent's program: the native one behind the script that npm installs, if there is one.

The script would cost memory and swallow signals.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.installed import InstalledAgent
from hypervisor.agents.profile import AgentProfile
from hypervisor.core.extras import install_command

SCRIPTS = (".js", ".cjs", ".mjs")
MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
VERSION_PATIENCE = 20.0
VERSION = re.compile(r"\d+\.\d+")
# Only these programs are run with --version; an unknown one might start working.
KNOWN = frozenset(profile.program for profile in BUILTIN.values())


def find(profile: AgentProfile, user_env: Mapping[str, str] | None = None) -> InstalledAgent:
    """The program and its version. `user_env` is the environment; the default is our own."""
    env = os.environ if user_env is None else user_env
    path = locate(profile, env)
    if not path:
        return InstalledAgent(problem=f"{profile.program} is not on PATH")
    try:
        stamp = os.stat(path).st_mtime_ns
    except OSError as error:
        return InstalledAgent(problem=f"{path}: {error.strerror}")
    version, problem = "", ""
    if profile.stream == "acp" and find_spec("acp") is None:
        return InstalledAgent(path, problem=f"agents that speak ACP need {install_command('acp')}")
    if profile.stream not in ("text", "acp") or os.path.basename(profile.program) in KNOWN:
        version, problem = _version(path, stamp, env.get("PATH", os.defpath))
    return InstalledAgent(path, version, problem or _login_problem(profile, env))


def locate(profile: AgentProfile, env: Mapping[str, str]) -> str:
    """The path of the program, "" if not found."""
    program = os.path.expanduser(profile.program)
    path = shutil.which(program, path=env.get("PATH", os.defpath))
    if path is None:
        return ""
    real = os.path.realpath(path)
    if not real.endswith(SCRIPTS):
        return os.path.abspath(path)
    return next(_native(real, os.path.basename(path)), os.path.abspath(path))


def _native(script: str, name: str) -> Iterator[str]:
    """npm puts the native program into a separate package, next to the script's or below it."""
    package = _package(os.path.dirname(script))
    if package is None:
        return
    machine = MACHINES.get(platform.machine().lower(), platform.machine())
    kind = f"{platform.system().lower()}-{machine}"
    own = os.path.basename(package)
    scope = os.path.basename(os.path.dirname(package))
    folders = [
        f"{package}-{kind}",
        os.path.join(package, "node_modules", f"{own}-{kind}"),
        os.path.join(package, "node_modules", scope, f"{own}-{kind}"),
    ]
    for folder in folders:
        for place in (folder, os.path.join(folder, "bin"), *_vendored(folder)):
            path = os.path.join(place, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                yield path


def _vendored(folder: str) -> list[str]:
    with suppress(OSError):
        vendor = os.path.join(folder, "vendor")
        return [
            os.path.join(vendor, name, sub)
            for name in sorted(os.listdir(vendor))
            for sub in ("bin", "codex")
        ]
    return []


def _package(folder: str) -> str | None:
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, "package.json")):
            with suppress(OSError, ValueError), open(os.path.join(folder, "package.json")) as file:
                if json.load(file).get("name"):
                    return folder
        folder = os.path.dirname(folder)
    return None


@lru_cache
def _version(path: str, stamp: int, search: str) -> tuple[str, str]:
    """The output of `--version`, and the problem if it failed. `stamp` is part of the cache key."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hv-version-") as home:
        try:
            ended = subprocess.run(
                [path, "--version"],
                env={"PATH": search, "HOME": home, "TMPDIR": home},
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=VERSION_PATIENCE,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return "", f"--version did not answer within {VERSION_PATIENCE:.0f} s"
        except OSError as error:
            return "", f"cannot be started: {error.strerror}"
    output = (ended.stdout or ended.stderr).decode("utf-8", "replace").strip()
    if ended.returncode:
        first = output.splitlines()[0][:200] if output else f"exit code {ended.returncode}"
        return "", f"--version failed: {first}"
    if not VERSION.search(output):
        return "", f"--version did not print a version: {output[:200]!r}"
    return output.splitlines()[0][:80], ""


def _login_problem(profile: AgentProfile, env: Mapping[str, str]) -> str:
    """A key or a login must exist; only a call shows whether it is valid."""
    if not profile.keys and not profile.login:
        return ""
    home = env.get("HOME", "")
    if any(env.get(name) for name in profile.keys):
        return ""
    if any(os.path.exists(os.path.join(home, name)) for name in profile.login):
        return ""
    names = " or ".join(profile.keys)
    if profile.login:
        return f"not logged in: start it once and log in{f', or set {names}' if names else ''}"
    return f"no key: set {names}"
