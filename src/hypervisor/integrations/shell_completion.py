"""Install the tab completion into the user's shell: one file that the shell loads by itself.

Start-up files such as ~/.bashrc are never edited. A file that Hypervisor did not write is left
alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from os.path import join

from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.integrations.clients import Place
from hypervisor.integrations.install import write_file

SHELLS = ("bash", "zsh", "fish")
MARK = "# Tab completion for hv (hypervisor-queue)"  # by which our own file is recognized


class Installed(NamedTuple):
    """The file that was written, or would be, and what is left to do for it to be loaded."""

    shell: str
    path: str
    changed: bool
    note: str


def shell_of(environment: Mapping[str, str]) -> str:
    """The login shell of the user."""
    shell = os.path.basename(environment.get("SHELL", ""))
    if shell not in SHELLS:
        raise InvalidInput(
            f"cannot tell your shell from $SHELL ({shell[:40] or 'not set'}). "
            "Name it: hv completion bash --install"
        )
    return shell


def install_completion(shell: str, script: str, place: Place, dry_run: bool = False) -> Installed:
    """Write the script where the shell looks for it."""
    path, note = _target(shell, place)
    text = script + "\n"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            old = file.read()
    except FileNotFoundError:
        old = None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}).") from None
    if old is not None and MARK not in old:
        raise WrongState(
            f"{path} already exists and was not written by hv. Remove it, then try again."
        )
    if old != text and not dry_run:
        write_file(os.path.realpath(path), text.encode())
    return Installed(shell, path, old != text, note)


def _target(shell: str, place: Place) -> tuple[str, str]:
    data = place.env.get("XDG_DATA_HOME") or join(place.home, ".local", "share")
    config = place.env.get("XDG_CONFIG_HOME") or join(place.home, ".config")
    if shell == "bash":
        return (
            join(data, "bash-completion", "completions", "hv"),
            "new shells load it if the package bash-completion is installed; "
            'if not, add to ~/.bashrc: eval "$(hv completion bash)"',
        )
    if shell == "zsh":
        folder = join(data, "zsh", "site-functions")
        return join(folder, "_hv"), f"add to ~/.zshrc, before compinit: fpath=({folder} $fpath)"
    return join(config, "fish", "completions", "hv.fish"), "new shells load it"
