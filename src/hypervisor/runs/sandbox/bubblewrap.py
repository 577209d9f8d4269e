"""The command line of bubblewrap for an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.runs.sandbox.plan import SOCKET_FOLDER

if TYPE_CHECKING:
    from hypervisor.runs.sandbox.plan import Mounts

# The kernel ends everything inside when the first process in the PID namespace ends.
NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent")
ROOT = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
OWN_DEVICES = ("/dev",)  # --dev has made these
TEMPORARY = ("/tmp", "/var/tmp")
TRIAL = (*NAMESPACES, "--unshare-net", *ROOT, "true")


def bubblewrap(
    program: str, mounts: Mounts, cwd: str, *, network: bool, sockets: str = ""
) -> list[str]:
    """The words in front of the attempt's command. `network`: it gets a network of its own, with
    nothing in it. `sockets` is the folder of the sockets that lead outside."""
    words = [program, *NAMESPACES, *(("--unshare-net",) if network else ()), *ROOT]
    hidden = []
    for path, deed in mounts.in_order():
        if deed == "hide" and path.startswith(OWN_DEVICES):
            continue
        if path in TEMPORARY and deed == "hide":
            words += ["--bind", mounts.tmp, path]
        elif deed == "hide":
            words += ["--tmpfs", path]
            hidden.append(path)
        else:
            words += ["--bind" if deed == "write" else "--ro-bind", path, path]
    if sockets:
        words += ["--bind", sockets, SOCKET_FOLDER]
    # What is written into a hidden folder would be lost: refuse it.
    words += [word for path in hidden for word in ("--remount-ro", path)]
    return [*words, "--chdir", cwd, "--"]
