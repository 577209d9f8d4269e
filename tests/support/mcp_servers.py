"""The shared MCP servers of the stores that a test used."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def mcp_servers(folder: str | Path) -> list[int]:
    """The process ids of the servers of all stores below a folder, oldest first."""
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            is_below = words[5:] and words[5].startswith(os.fsencode(folder))
            if b"mcp" in words[4:5] and is_below:
                found.append(int(entry))
    return sorted(found)


def end_mcp_servers(folder):
    """End them; they would exit by themselves after half a minute."""
    for pid in mcp_servers(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def only_server(place):
    [server] = mcp_servers(place.folder)
    return server
