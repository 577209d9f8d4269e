"""How to add an optional dependency to this installation."""

import os
import shlex
import sys

DISTRIBUTION = "hypervisor-queue"


def install_command(extra: str) -> str:
    """The command that adds an extra, by the program that made this environment."""
    checkout = os.path.join(sys.prefix, "checkout")
    if os.path.islink(checkout):
        script = os.path.join(os.path.realpath(checkout), "scripts", "venv.sh")
        return f"sh {shlex.quote(script)} {extra}"
    requirement = f"'{DISTRIBUTION}[{extra}]'"
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv tool install {requirement}"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx install --force {requirement}"
    return f"pip install {requirement}"
