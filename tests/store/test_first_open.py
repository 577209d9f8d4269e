"""Several processes that open the same new store at the same moment."""

from __future__ import annotations

import subprocess
import sys

ROUNDS, LONG, PROCESSES = 12, 120, 4
PROGRAM = """
import os, sys
import hypervisor

for number in range(int(sys.argv[2])):
    path = os.path.join(sys.argv[1], str(number), "store.db")
    ready, go = os.pipe()
    children = []
    for _ in range(int(sys.argv[3])):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # ends when the parent closes its side
            hypervisor.open(path).close()
            os._exit(0)
        children.append(child)
    os.close(ready)
    os.close(go)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"round {number}: {len(failed)} failed")
"""


def test_none_of_them_is_refused(tmp_path, long):
    rounds = LONG if long else ROUNDS
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(rounds), str(PROCESSES)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
