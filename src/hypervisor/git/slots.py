"""Slots: small numbers that attempts on this host hold one at a time, each with its own ports.

A slot is a lock on a file, so it is free again when its holder dies, whatever killed it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from hypervisor.core.errors import WorkspaceError
from hypervisor.core.private_folders import make_private_folders

MAX_SLOTS = 1000
PORTS_EACH = 20
FIRST_PORT = 20_000  # below the range from which systems give out ports by themselves


@dataclass
class Slot:
    """Held until it is closed, or the process ends."""

    number: int
    handle: int

    @property
    def port_base(self) -> int:
        return FIRST_PORT + self.number * PORTS_EACH % (32_000 - FIRST_PORT)

    @property
    def environment(self) -> dict[str, str]:
        return {"HV_SLOT": str(self.number), "HV_PORT_BASE": str(self.port_base)}

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def take_slot(folder: str, most: int = MAX_SLOTS) -> Slot:
    """The lowest free slot; its lock file lies in this folder."""
    make_private_folders(folder)
    for number in range(most):
        path = os.path.join(folder, f"slot-{number}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
        else:
            return Slot(number, handle)
    raise WorkspaceError(f"all {most} slots are in use")
