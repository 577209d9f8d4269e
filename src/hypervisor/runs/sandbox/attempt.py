"""An attempt that is to be confined, and how it is started then."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.core.records import NamedTuple
from hypervisor.runs.sandbox.plan import Reach, Server


class Attempt(NamedTuple):
    """What is to be confined. `root` is the folder it works on; `home` and `tmp` belong to it.
    `writable` are single files outside of these, such as its login."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    root: str = ""  # "": the project
    home: str = ""  # "": an empty one, removed at the end
    tmp: str = ""
    may_write: bool = True
    writable: tuple[str, ...] = ()
    reach: Reach = Reach()
    server: Server | None = None
    programs: tuple[str, ...] = ()  # that it starts, in addition to the first word
    address_file: str = ""  # where its MCP client finds the address of the server


class Prepared(NamedTuple):
    argv: tuple[str, ...]
    env: dict[str, str]
