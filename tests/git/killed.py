"""One step with a workspace, in a separate process that a test kills: python -m tests.git.killed

Prints its progress, so that a test knows what must not be lost.
"""

from __future__ import annotations

import sys

from hypervisor.git import hub as hubs
from hypervisor.git.collect import collect
from hypervisor.git.removal import empty_trash, trash, trash_folder
from hypervisor.git.snapshot import take
from hypervisor.git.workspace import create, open_existing
from tests.git.support import repository_at

hubs.STALE_LOCK = 0.3  # a test does not wait for half a minute


def main(step: str, checkout: str, data: str, name: str) -> None:
    from pathlib import Path

    folder = f"{data}/git/work/{name}"
    hub = hubs.open_hub(data, repository_at(Path(checkout)))
    workspace = open_existing(folder)
    if step == "create":
        create(hub, folder, f"hv/b/{name}", hub.resolve("HEAD"))
    elif step == "remove":
        if workspace is not None:
            reasons = trash(workspace, name, 1, now=1).why_kept
            assert not reasons, reasons
        empty_trash(f"{data}/git/trash", now=1, retention=0)
    elif workspace is not None and step == "snapshot":
        print(take(workspace, name, 1, "due", now=1).commit)
    elif workspace is not None and step == "collect":
        print(collect(workspace, name, 1, "Work", {}, now=1).head)
    print("done", trash_folder(workspace) if workspace else "", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
