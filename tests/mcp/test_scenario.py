"""Whole scenarios with the Python client: several workers, and a supervising agent."""

from __future__ import annotations

import json

import anyio
import pytest
from mcp_types import ElicitResult

from hypervisor import NewTask
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.runs import sql as runs_sql
from tests.mcp.conftest import call, refused
from tests.support.specs import run_spec

MANY = 20
CROWD = 4


async def work_off(client, name):
    """Claim and complete until nothing is left; returns the completed tasks."""
    done = []
    found = await call(client, "claim_next_task", caller=name)
    while found["tasks"]:
        task = found["tasks"][0]
        done.append(task["id"])
        await call(client, "append_receipt", text=f"{name} was here", token=task["token"])
        found = await call(
            client, "complete_task", token=task["token"], summary=f"{name} did it", claim_next=True
        )
    return done


def crowd(place, clients):
    """Create 20; four clients claim and complete at once; the summary has all of them."""

    async def work():
        done = {}

        async def one(name):
            async with clients() as client:
                done[name] = await work_off(client, name)

        async with clients() as boss:
            tasks = [{"title": f"task {n}", "key": str(n)} for n in range(MANY)]
            made = await call(boss, "create_task", tasks=tasks, batch="crowd", priority="high")
            again = await call(boss, "create_task", tasks=tasks, batch="crowd")
            assert again["ids"] == [] and len(again["duplicates"]) == MANY
            async with anyio.create_task_group() as group:
                for number in range(CROWD):
                    group.start_soon(one, f"worker-{number}")
            summary = await call(boss, "get_summary", batch="crowd", limit=15)
            rest = await call(boss, "get_summary", batch="crowd", after=summary["next"])
            return made["ids"], done, summary, rest

    ids, done, summary, rest = anyio.run(work)
    assert sorted(task for each in done.values() for task in each) == sorted(ids)
    assert summary["succeeded"] and summary["states"] == {"done": MANY}
    rows = [*summary["workers"], *rest["workers"]]
    assert [row["task_id"] for row in rows] == sorted(ids) and "next" not in rest
    with place.open() as hv:
        assert len(hv.receipts("crowd")) == MANY
        assert hv.verify("crowd")[0].problem is None
        shown = [hv.show(task) for task in ids]
        assert all(len(each.detail.attempts) == 1 for each in shown)


def test_a_crowd_over_stdio(place):
    crowd(place, place.client)


def test_a_crowd_over_http(served):
    crowd(served.place, served.client)


def test_a_supervisor_looks_and_steers(place):
    async def work():
        async with place.client() as client:
            made = await call(client, "create_task", title="Look", batch="b", data={"a": [1]})
            first = made["ids"][0]
            second = (await call(client, "create_task", title="Then", batch="b", after=[first]))[
                "ids"
            ][0]
            stats = await call(client, "get_task_stats", batch="b")
            assert stats["states"] == {"waiting": 1, "active": 1} and not stats["supervisor"]
            counts = await call(client, "get_index_stats", include_projects=True)
            assert counts["total"] == 2 and counts["projects"][0]["batch"] == "b"
            listed = await call(client, "list_tasks", batch="b", limit=1, fields=["title"])
            assert listed["tasks"] == [{"id": second, "title": "Then"}]
            page = await call(client, "list_tasks", batch="b", before=listed["next"])
            assert {task["batch"] for task in page["tasks"]} == {"b"}
            assert [each["id"] for each in page["tasks"]] == [first] and "next" not in page
            shown = await call(client, "get_task", id=second)
            assert shown["waits_for"] == [first]
            moved = await call(client, "update_task", id=first, priority="critical", body="more")
            assert moved == {"id": first, "state": "active"}
            assert "nothing to change" in await refused(client, "update_task", id=first)
            await call(client, "steer_batch", batch="b", do="pause", reason="wait")
            assert (await call(client, "claim_next_task", batch="b"))["tasks"] == []
            await call(client, "steer_batch", batch="b", do="resume")
            token = (await call(client, "claim_next_task", batch="b"))["tasks"][0]["token"]
            failed = await call(client, "fail_task", reason="no", final=True, token=token)
            assert failed["state"] == "failed"
            assert (await call(client, "update_task", id=first, move="retry"))["state"] == "active"
            ended = await call(client, "cancel_task", ids=[first, "zzzzzzzzzzzz"], reason="enough")
            assert ended["moved"] == [{"id": first, "state": "cancelled"}]
            assert len(ended["refused"]) == 1
            looked = await call(client, "preflight", items=["a.txt", "a.txt"])
            assert looked["headline"] and looked["advice"]
            assert "no output" in await refused(client, "read_output", id=first)

    anyio.run(work)


def test_prompts_and_resources(place):
    async def work():
        async with place.client("supervisor") as client:
            prompts = {each.name for each in (await client.list_prompts()).prompts}
            assert prompts == {"worker", "supervisor", "review"}
            text = await client.get_prompt("worker", {"caller": "gemini", "batch": "b"})
            assert 'caller "gemini"' in text.messages[0].content.text
            task = (await call(client, "create_task", title="Look", batch="b"))["ids"][0]
            found = (await client.list_resource_templates()).resource_templates
            assert {each.uri_template for each in found} == {
                "hypervisor://batches/{batch}/summary",
                "hypervisor://tasks/{task}",
                "hypervisor://tasks/{task}/output",
                "hypervisor://branches/{branch}/findings",
            }
            batches = json.loads(
                (await client.read_resource("hypervisor://batches")).contents[0].text
            )
            assert batches[0]["batch"] == "b"
            listed = (await client.read_resource("hypervisor://skills")).contents[0].text
            assert "triage" in {each["skill"] for each in json.loads(listed)}
            uri = f"hypervisor://batches/{batches[0]['id']}/summary"
            summary = json.loads((await client.read_resource(uri)).contents[0].text)
            assert summary["states"] == {"active": 1}
            shown = await client.read_resource(f"hypervisor://tasks/{task}")
            assert json.loads(shown.contents[0].text)["title"] == "Look"
            await call(client, "remember", text="the cellar is wet", branch="house")
            known = await client.read_resource("hypervisor://branches/house/findings")
            assert json.loads(known.contents[0].text)[0]["text"] == "the cellar is wet"
            async with client.listen(resource_subscriptions=[uri]) as heard:
                with place.open() as hv:
                    hv.complete(hv.claim("w")[0].token)
                event = await anext(aiter(heard))
                assert event.uri == uri

    anyio.run(work)


@pytest.fixture
def gated(place):
    """A batch whose first chunk waits for a decision."""
    with place.open() as hv:
        spec = run_spec(str(place.folder), ("true", "{}"), gate="each")
        batch = hv.store.write(
            runs_sql.declare,
            "gated",
            {"cwd": spec.cwd, "command": ["true"], "gate": "each"},
            "me",
            hv.now(),
        )
        chunks = hv.store.write(chunks_sql.declare, batch.id, ["one", "two"], "each")
        tasks = [
            NewTask(f"t{c.number}", key=str(c.number), chunk=c.number, data={"item": str(c.number)})
            for c in chunks
        ]
        hv.add(tasks, "gated")
        hv.complete(hv.claim("w", batch="gated")[0].token, {"category": "fine"})
        yield hv


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
def test_a_person_is_asked_where_the_client_can_ask(place, gated, era):
    asked = []

    async def answer(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve", "note": "good"})

    async def work():
        async with place.client("supervisor", mode=era, elicitation_callback=answer) as client:
            found = await call(client, "list_checkpoints")
            assert found["checkpoints"][0]["categories"] == {"fine": 1}
            return await call(client, "decide_checkpoint", batch="gated")

    done = anyio.run(work)
    assert done == {"batch": "gated", "chunk": 1, "message": "approved; 1 chunk opened"}
    assert "gated" in asked[0]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_person_may_not_decide(place, gated, action):
    async def answer(context, params):
        return ElicitResult(action=action)

    async def work():
        async with place.client("supervisor", elicitation_callback=answer) as client:
            return await refused(client, "decide_checkpoint", batch="gated")

    assert "made no decision" in anyio.run(work)
    assert gated.chunks("gated")[0].awaits_decision


def test_where_it_cannot_ask_the_agent_is_told_to(place, gated):
    async def work():
        async with place.client("supervisor") as client:
            assert "list_checkpoints" in await refused(client, "decide_checkpoint", batch="gated")
            done = await call(client, "decide_checkpoint", batch="gated", decision="reject")
            assert done["message"].startswith("rejected")

    anyio.run(work)
