"""A worker over stdio: claim, receipts, completion; its claims are released when it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import anyio
import apsw

from hypervisor import NewTask
from hypervisor.runs import sql as runs_sql
from tests.mcp.conftest import PROGRAM, call, refused, wait_for
from tests.support.mcp_servers import mcp_servers

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_a_task_from_claim_to_done(place):
    with place.open() as hv:
        hv.add([NewTask("Look", body="at all of it", data={"a": 1}), NewTask("Listen")], "b")

    async def work():
        async with place.client("worker") as client:
            found = await call(client, "claim_next_task", caller="gemini")
            task = found["tasks"][0]
            assert task["title"] == "Look" and task["body"] == "at all of it"
            assert task["data"] == {"a": 1}
            token = task["token"]
            await call(client, "append_receipt", text="looked at it", token=token)
            action = {"do": "delete", "path": "old.txt"}
            assert (await call(client, "propose_action", action=action, token=token))["count"] == 1
            beat = await call(client, "heartbeat", tokens=[token])
            assert beat == {"alive": [token], "lost": []}
            done = await call(
                client,
                "complete_task",
                summary="fine",
                result={"n": 2},
                receipts=["sum: 2"],
                claim_next=True,
                token=token,
            )
            assert done["state"] == "done" and not done["repeated"]
            assert done["tasks"][0]["title"] == "Listen"
            again = await call(client, "complete_task", summary="fine", token=token)
            assert again["repeated"]
            blocked = await call(
                client,
                "block_task",
                reason="no ears",
                evidence="ls ears: none",
                next_step="grow some",
                token=done["tasks"][0]["token"],
            )
            assert blocked["state"] == "blocked"
            nothing = await call(client, "claim_next_task")
            assert nothing["tasks"] == [] and "QUEUE EMPTY" in nothing["note"]
            return token, done["tasks"][0]["id"]

    token, listened = anyio.run(work)
    with place.open() as hv:
        looked = hv.show(token.split(".")[0])
        assert looked.detail.task.result == {
            "n": 2,
            "summary": "fine",
            "actions": [{"do": "delete", "path": "old.txt"}],
        }
        assert [line.text for line in looked.receipts] == ["looked at it", "sum: 2"]
        assert looked.detail.attempts[0].worker.startswith("gemini@")
        blocked = hv.show(listened).detail.task
        assert blocked.reason == "no ears Evidence: ls ears: none"
        assert blocked.unblock == "grow some"


def test_a_stale_token_changes_nothing_and_says_what_to_do(place):
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]

    async def work():
        async with place.client("worker") as client:
            token = (await call(client, "claim_next_task"))["tasks"][0]["token"]
            with place.open() as hv:
                hv.take_back(task)
            said = [
                await refused(client, "complete_task", summary="late", token=token),
                await refused(client, "append_receipt", text="late", token=token),
                await refused(client, "block_task", reason="late", token=token),
                await refused(client, "fail_task", reason="late", token=token),
                await refused(
                    client, "propose_action", action={"do": "task", "title": "x"}, token=token
                ),
            ]
            assert all(text.startswith("the claim has ended:") for text in said), said
            assert all("claim_next_task" in text for text in said)
            assert (await call(client, "heartbeat", tokens=[token]))["lost"] == [token]
            assert "claim_next_task" in await refused(client, "complete_task")
            assert "not a claim token" in await refused(client, "complete_task", token="x")

    anyio.run(work)
    with place.open() as hv:
        assert hv.show(task).detail.task.state == "active"
        assert not hv.show(task).receipts


def test_a_worker_of_one_attempt_needs_no_token_and_gets_no_second_task(place):
    with place.open() as hv:
        hv.add([NewTask("Look"), NewTask("Listen")])
        lease = hv.claim("w")[0]

        async def work():
            async with place.client("worker", env={"HV_TOKEN": lease.token}) as client:
                mine = await call(client, "claim_next_task", caller="claude", limit=5)
                assert [each["token"] for each in mine["tasks"]] == [lease.token]
                assert (await call(client, "get_task"))["id"] == lease.task.id
                await call(client, "append_receipt", text="looked")
                assert "block it" in await refused(client, "release_task")
                assert (await call(client, "complete_task", summary="fine"))["state"] == "done"
                more = await call(client, "claim_next_task")
                assert more["tasks"] == [] and "COMPLETED" in more["note"]

        anyio.run(work)
        states = hv.stats().states
        assert states["done"] == 1 and states["active"] == 1


def test_an_attempts_claim_stays_with_its_worker_when_the_pipe_ends(place):
    with place.open() as hv:
        hv.add([NewTask("Look")])
        lease = hv.claim("w")[0]

        async def work():
            async with place.client("worker", env={"HV_TOKEN": lease.token}) as client:
                await call(client, "claim_next_task")

        anyio.run(work)
        assert hv.heartbeat([lease.token]).alive == (lease.token,)


def test_the_next_task_is_one_like_that_which_was_asked_for(place):
    with place.open() as hv:
        hv.add([NewTask("other")], "other")
        hv.add([NewTask("a"), NewTask("b")], "mine")
        foreign = hv.claim("w", batch="other", pid=0)[0]

    async def work():
        async with place.client("worker") as client:
            found = await call(client, "claim_next_task", caller="gemini", batch="mine")
            done = await call(
                client, "complete_task", token=found["tasks"][0]["token"], claim_next=True
            )
            after = await call(
                client, "complete_task", token=done["tasks"][0]["token"], claim_next=True
            )
            assert after["tasks"] == [] and "QUEUE EMPTY" in after["note"]
            unknown = await call(client, "complete_task", token=foreign.token, claim_next=True)
            assert unknown["tasks"] == [] and "call claim_next_task" in unknown["note"]
            return done["tasks"][0]["id"]

    second = anyio.run(work)
    with place.open() as hv:
        assert hv.show(second).detail.attempts[0].worker.startswith("gemini@")


def test_a_reduce_without_results_is_given_back_and_the_others_are_handed_out(place):
    with place.open() as hv:
        broken = NewTask("sum up", key="reduce", data={"gather": "nonsense"})
        added = hv.add([broken, NewTask("mine", data={"gather": "nonsense"}), NewTask("c")])

    async def work():
        async with place.client("worker") as client:
            found = await call(client, "claim_next_task", limit=2)
            assert [task["title"] for task in found["tasks"]] == ["mine"]
            done = await call(
                client, "complete_task", token=found["tasks"][0]["token"], claim_next=True
            )
            assert done["state"] == "done" and done["tasks"] == []
            assert "nonsense" in done["note"] and "released" in done["note"]
            with place.open() as hv:
                return [hv.show(task).detail.task.state for task in added.ids]

    assert anyio.run(work) == ["active", "done", "active"]


def test_the_id_of_a_task_is_not_a_claim(place):
    with place.open() as hv:
        task = hv.add([NewTask("a")]).ids[0]

    async def work():
        async with place.client("worker") as client:
            said = await refused(client, "append_receipt", text="did it", token=task)
            assert "not a claim token" in said
            said = await refused(client, "get_task", id=task, fields=["colour"])
            assert "'colour'" in said and "title" in said

    anyio.run(work)
    with place.open() as hv:
        assert hv.show(task).receipts == ()


def test_a_keepers_agent_claims_in_its_name_up_to_a_number(place):
    with place.open() as hv:
        hv.add([NewTask("t") for _ in range(5)], "mine")
        hv.add([NewTask("other")], "other")
        hv.add([NewTask("net", requires=("net",))], "mine")
        env = {
            "HV_KEEPER_PID": str(os.getpid()),
            "HV_KEEPER_NAME": "keeper-1",
            "HV_PULL": "3",
            "HV_BATCH": "mine",
            "HV_CAPABILITIES": "net, agent:claude",
        }

        async def work():
            async with place.client("worker", env=env) as client:
                found = await call(client, "claim_next_task", caller="x", batch="other", limit=2)
                tokens = [each["token"] for each in found["tasks"]]
                assert len(tokens) == 2
                done = await call(client, "complete_task", token=tokens[0], claim_next=True)
                assert len(done["tasks"]) == 1
                done = await call(client, "complete_task", token=tokens[1], claim_next=True)
                assert done["tasks"] == [] and "all tasks of this run" in done["note"]
                assert "all tasks" in (await call(client, "claim_next_task"))["note"]
                return done

        anyio.run(work)
        running = hv.store.read(runs_sql.running, None, 10)  # not released: it is the keeper's
        assert [each.worker.pid for each in running] == [os.getpid()]
        assert running[0].worker.name == "keeper-1"
        assert hv.stats("other").states["active"] == 1


def test_claims_come_back_when_the_client_is_killed(place):
    """A real client is killed; the server sees its pipe close and releases the task."""
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]
        program = CLIENT.format(program=PROGRAM)
        client = subprocess.Popen(
            [sys.executable, "-c", program],
            env=place.env,
            cwd=place.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdout.readline().strip() == task
        assert hv.show(task).detail.task.state == "in_progress"
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        wait_for(lambda: hv.show(task).detail.task.state == "active")
        attempt = hv.show(task).detail.attempts[0]
        assert attempt.outcome == "released" and hv.show(task).detail.task.crashes == 0


def test_claims_come_back_when_nobody_reads_the_answers(place):
    with place.open() as hv:
        hv.add([NewTask("a")])
        server = place.start("mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            for number in range(40):  # far more than a pipe holds
                name = "tools/list" if number else "tools/call"
                asked = {"name": "claim_next_task", "arguments": {}}
                params = {"_meta": MODERN} if number else {**asked, "_meta": MODERN}
                call = {"jsonrpc": "2.0", "id": number, "method": name, "params": params}
                server.stdin.write(json.dumps(call).encode() + b"\n")
            server.stdin.flush()
            wait_for(lambda: hv.stats().states["in_progress"] == 1)
            server.stdin.close()
            wait_for(lambda: hv.stats().states["active"] == 1)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


def test_claims_come_back_when_the_server_is_asked_to_end(place):
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]
        server = place.start("mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lines = [
            '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":'
            '"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}',
            '{"jsonrpc":"2.0","method":"notifications/initialized"}',
            '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"claim_next_task",'
            '"arguments":{}}}',
        ]
        server.stdin.write("\n".join(lines) + "\n")
        server.stdin.flush()
        server.stdout.readline()
        assert task in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(180) == 0
        assert hv.show(task).detail.task.state == "active"
        server.stdin.close()
        server.stdout.close()


def test_a_pipe_that_is_killed_leaves_proof_of_its_death(place):
    """Its server cannot release the claim: it was stopped before."""
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]

        async def work():
            async with place.client("worker") as client:
                await call(client, "claim_next_task")
                pid = hv.store.read(runs_sql.running, None, 1)[0].worker.pid
                [server] = mcp_servers(place.folder)
                os.kill(server, signal.SIGSTOP)
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda: task in hv.sweep().reclaimed)

        with suppress(BaseExceptionGroup):  # its pipe is gone
            anyio.run(work)
        assert hv.show(task).detail.task.state == "active"


def test_what_a_cancelled_call_claimed_is_released(place):
    """The store is kept busy until the client has timed out; the claim is made after that."""
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]

        async def work():
            async with place.client("worker") as client:
                await client.list_tools()
                busy = apsw.Connection(place.path)
                busy.execute("BEGIN IMMEDIATE")
                with anyio.move_on_after(1) as patience:
                    await call(client, "claim_next_task")
                assert patience.cancelled_caught
                await anyio.sleep(1.5)  # the cancellation is in flight
                busy.execute("ROLLBACK")
                busy.close()
                wait_for(lambda: hv.show(task).detail.attempts)
                wait_for(lambda: hv.show(task).detail.task.state == "active")
                found = await call(client, "claim_next_task")
                assert [each["id"] for each in found["tasks"]] == [task]

        anyio.run(work)
        wait_for(lambda: all(each.outcome for each in hv.show(task).detail.attempts))
        assert [each.outcome for each in hv.show(task).detail.attempts] == ["released"] * 2
        assert hv.show(task).detail.attempts[0].reason == "the call was cancelled"


CLIENT = """
import anyio, os
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    words = {program!r}
    server = StdioServerParameters(command=words[0], args=[*words[1:], "mcp"], env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        found = await client.call_tool("claim_next_task", {{"caller": "x"}})
        print(found.structured_content["tasks"][0]["id"], flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


def test_a_server_that_is_only_started_leaves_no_store_behind(place):
    async def work():
        async with place.client("all") as client:
            await client.list_tools()
            assert not os.path.exists(place.path)
            await call(client, "create_task", title="Look")

    anyio.run(work)
    with place.open() as hv:
        assert hv.stats().states["active"] == 1


def test_a_question_is_answered_and_the_next_claim_has_the_answer(place):
    with place.open() as hv:
        hv.add([NewTask("Look")])

    async def work():
        async with place.client("all") as client:
            first = (await call(client, "claim_next_task"))["tasks"][0]
            asks = {"reason": "no port", "next_step": "Name one.", "question": "Which port"}
            await call(client, "block_task", **asks, token=first["token"])
            (listed,) = (await call(client, "list_tasks", states=["blocked"]))["tasks"]
            assert listed["question"] == "Name one. Which port?"
            answer = {"id": first["id"], "move": "answer", "reason": "use 8080"}
            moved = await call(client, "update_task", **answer)
            assert moved == {"id": first["id"], "state": "active"}
            again = await refused(client, "update_task", **answer)
            assert "asks nothing" in again
            second = await call(client, "claim_next_task")
            asked = "(asked: no port Name one. Which port?)"
            assert second["note"] == f"A person answered {first['id']}: use 8080 {asked}"
            assert second["tasks"][0]["attempt"] == 2
            shown = await call(client, "get_task", id=first["id"])
            assert shown["messages"] == [second["note"]] and "question" not in shown

    anyio.run(work)
