"""Several processes change the same thing at the same moment: nothing acknowledged is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import anyio
import pytest

import hypervisor
from hypervisor import NewTask
from tests.mcp.conftest import PROGRAM, Place, call

PROPOSERS, EACH = 6, 10
CALLS = 40
REVIEWERS = 8
DEADLINE = 180

PROPOSE = """
import sys
import hypervisor
with hypervisor.open(sys.argv[1]) as hv:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[4])):
        hv.propose(sys.argv[2], {"do": "delete", "path": f"{sys.argv[3]}-{number}.txt"})
        print(f"{sys.argv[3]}-{number}.txt", flush=True)
"""


@pytest.fixture
def hv(store):
    with hypervisor.open(store.where, relaxed=True) as opened:
        yield opened


@pytest.fixture
def place(store, tmp_path):
    (tmp_path / "place").mkdir()
    made = Place(tmp_path / "place")
    made.path = made.env["HYPERVISOR_STORE"] = store.where
    return made


def start_at_once(commands: Iterable[list[str]], env: dict[str, str] | None = None) -> list[str]:
    """Start a process for each command, release them together, return what they print."""
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        for process in started:
            assert process.stdout and process.stdin
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in started:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [(process.communicate(timeout=DEADLINE), process.returncode) for process in started]
        assert [code for _, code in ended] == [0] * len(started), [err for (_, err), _ in ended]
        return [out for (out, _), _ in ended]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_proposals_of_one_claim_from_several_processes_are_all_kept(hv, store):
    hv.add([NewTask("look")], "b")
    (lease,) = hv.claim("worker", pid=0)
    printed = start_at_once(
        [sys.executable, "-c", PROPOSE, store.where, lease.token, str(n), str(EACH)]
        for n in range(PROPOSERS)
    )
    acknowledged = sorted(line for text in printed for line in text.split())
    assert len(acknowledged) == PROPOSERS * EACH
    hv.complete(lease.token, {"summary": "fine"}, proposals=True)
    result = hv.show(lease.task.id).detail.task.result
    assert sorted(action["path"] for action in result["actions"]) == acknowledged
    assert result["summary"] == "fine"


def test_proposals_made_at_once_over_one_mcp_server_are_all_kept(hv, place):
    (task,) = hv.add([NewTask("look")], "b").ids

    async def work():
        async with place.client("worker") as client:
            claimed = await call(client, "claim_next_task", caller="gemini")
            token = claimed["tasks"][0]["token"]
            counts = []

            async def propose(number):
                action = {"do": "delete", "path": f"{number}.txt"}
                answer = await call(client, "propose_action", action=action, token=token)
                counts.append(answer["count"])

            async with anyio.create_task_group() as group:
                for number in range(CALLS):
                    group.start_soon(propose, number)
            await call(client, "complete_task", summary="fine", token=token)
            return counts

    assert sorted(anyio.run(work)) == list(range(1, CALLS + 1))
    result = hv.show(task).detail.task.result
    assert sorted(int(action["path"][:-4]) for action in result["actions"]) == list(range(CALLS))


def test_corrections_made_at_once_are_all_kept(hv, place):
    (task,) = hv.add([NewTask("look")], "b").ids
    (lease,) = hv.claim("worker")
    hv.complete(lease.token, {"category": "fyi"})
    program = f"print('ready', flush=True); input(); {PROGRAM[-1]}"
    start_at_once(
        (
            [*PROGRAM[:-1], program, "review", "b", "--set", task, f"field{n}=value{n}"]
            for n in range(REVIEWERS)
        ),
        place.env,
    )
    expected = {"category": "fyi", **{f"field{n}": f"value{n}" for n in range(REVIEWERS)}}
    assert hv.show(task).detail.task.result == expected
    assert len(hv.receipts(task)) == REVIEWERS
