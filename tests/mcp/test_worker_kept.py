"""What a worker writes over MCP, and what is stored: no secrets, no leftover proposals."""

from __future__ import annotations

import anyio

from hypervisor import NewTask
from hypervisor.agents.secrets import marks_of
from tests.mcp.conftest import call
from tests.support.proposing import left_over
from tests.support.specs import run_spec


def test_secrets_of_the_agent_are_not_kept_and_claims_still_work(place):
    """Whatever it writes: the server only knows fingerprints of the secrets."""
    secret = "sk-planted-4711-for-this-test"
    env = {"HV_HIDE": marks_of([secret], b"salt")}
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]

    async def work():
        async with place.client("worker", env=env) as client:
            token = (await call(client, "claim_next_task"))["tasks"][0]["token"]
            assert (await call(client, "heartbeat", tokens=[token]))["alive"] == [token]
            await call(client, "append_receipt", text=f"used {secret}", token=token)
            await call(client, "remember", text=f"the key is {secret}", token=token)
            action = {"do": "write", "path": "a", "text": secret}
            await call(client, "propose_action", action=action, token=token)
            result = {"deep": [{secret: secret}]}
            await call(client, "complete_task", result=result, summary=secret, token=token)

    anyio.run(work)
    with place.open() as hv:
        shown = hv.show(task)
        assert shown.detail.task.state == "done" and len(shown.receipts) == 1
        known = hv.recall()
        assert secret not in repr((shown, known, hv.events()))
        assert repr((shown, known)).count("[hidden]") >= 5


def test_what_was_proposed_stays_with_the_result_alone(place):
    with place.open() as hv:
        hv.add([NewTask("a"), NewTask("b")])

        async def work():
            async with place.client("worker") as client:
                for end in ("complete_task", "block_task"):
                    token = (await call(client, "claim_next_task"))["tasks"][0]["token"]
                    action = {"do": "delete", "path": "old.txt"}
                    await call(client, "propose_action", action=action, token=token)
                    assert len(left_over(hv.store)) == 1
                    said = {"reason": "stuck"} if end == "block_task" else {}
                    await call(client, end, token=token, **said)
                    assert left_over(hv.store) == []

        anyio.run(work)


def test_the_file_of_a_task_shows_how_it_ended(place):
    path = place.folder / "a.md"
    path.write_text("---\nstatus: todo\n---\nLook\n")
    data = {"item": "a.md", "columns": {"path": "a.md", "status": "todo"}}
    with place.open() as hv:
        spec = run_spec(str(place.folder), ("true",), write_back="status")
        hv.submit(spec, [NewTask("a", key="a.md", data=data)], "b")

    async def work():
        async with place.client("worker") as client:
            token = (await call(client, "claim_next_task"))["tasks"][0]["token"]
            await call(client, "complete_task", summary="all good", token=token)

    anyio.run(work)
    assert "status: done" in path.read_text() and "summary: all good" in path.read_text()
