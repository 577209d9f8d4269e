"""Killed servers and pipes: sessions continue, and claims are kept or released."""

from __future__ import annotations

import os
import signal

from hypervisor import NewTask
from hypervisor.mcp.pipe import MAX_STARTS
from tests.mcp.conftest import wait_for
from tests.mcp.talk import request, talk, tool
from tests.support.mcp_servers import mcp_servers, only_server


def kill_server(place):
    server = only_server(place)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: server not in mcp_servers(place.folder))


def state(hv, task):
    return hv.show(task).detail.task.state


class TestKilledServer:
    def test_the_session_and_its_claims_continue(self, place, hv):
        hv.add([NewTask("a"), NewTask("b")], "batch")
        with talk(place) as client:
            client.greet()
            claimed = client.call("claim_next_task", caller="me", batch="batch")["tasks"][0]
            for _ in range(2):
                kill_server(place)
                assert client.call("heartbeat", tokens=[claimed["token"]])["lost"] == []
                assert state(hv, claimed["id"]) == "in_progress"
            ended = client.call("complete_task", token=claimed["token"], claim_next=True)
            assert ended["state"] == "done" and len(ended["tasks"]) == 1  # it knew what was asked
            kill_server(place)
            assert client.leave()[1] == 0
        assert state(hv, ended["tasks"][0]["id"]) == "active"  # given back at the end
        assert hv.show(ended["tasks"][0]["id"]).detail.task.crashes == 0

    def test_nobody_else_gets_the_claim_in_the_meantime(self, place, hv):
        task = hv.add([NewTask("a")]).ids[0]
        with talk(place) as client:
            client.greet()
            client.call("claim_next_task")
            kill_server(place)
            assert hv.sweep().reclaimed == () and hv.claim("other") == ()
            assert state(hv, task) == "in_progress"

    def test_a_limit_of_tasks_holds_beyond_its_death(self, place, hv):
        hv.add([NewTask("a"), NewTask("b")])
        with talk(place, "worker", env={"HV_PULL": "1"}) as client:
            client.greet()
            assert len(client.call("claim_next_task")["tasks"]) == 1
            kill_server(place)
            assert client.call("claim_next_task")["tasks"] == []

    def test_a_claim_without_an_answer_is_released(self, place, hv):
        """The server dies after it has claimed and before it could answer."""
        hv.add([NewTask("a")])
        with talk(place) as client:
            client.greet()
            server = only_server(place)
            os.kill(server, signal.SIGSTOP)
            client.send(tool("claim_next_task", 3))
            lost = hv.claim("agent", pid=client.pid)[0]
            os.kill(server, signal.SIGKILL)
            answer = client.read()
            [task] = answer["result"]["structuredContent"]["tasks"]
            assert answer["id"] == 3 and task["id"] == lost.task.id
            assert hv.heartbeat([lost.token]).lost == (lost.token,)

    def test_a_call_under_way_is_repeated_or_answered_with_an_error(self, place, hv):
        with talk(place) as client:
            client.greet()
            client.call("list_tasks")
            os.kill(only_server(place), signal.SIGSTOP)
            client.send(
                tool("create_task", 1, title="a"), tool("list_tasks", 2), request("ping", 3)
            )
            wait_for(client.is_passed_on)
            kill_server(place)
            answers = {answer["id"]: answer for answer in (client.read() for _ in range(3))}
            assert "may or may not" in answers[1]["error"]["message"]
            assert "result" in answers[2] and "result" in answers[3]
        assert hv.stats().total == 0

    def test_all_its_clients_meet_the_same_new_one(self, place):
        with talk(place) as client, talk(place) as other:
            client.greet()
            other.greet()
            kill_server(place)
            for each in (client, other):
                assert each.ask(request("tools/list"))["result"]["tools"]
            only_server(place)

    def test_one_that_keeps_dying_is_given_up(self, place):
        with talk(place) as client:
            client.greet()
            for _ in range(MAX_STARTS):
                assert client.pipe.poll() is None
                wait_for(lambda: mcp_servers(place.folder), 20)
                kill_server(place)
            assert client.pipe.wait(180) == 1
            assert b"keeps exiting" in client.pipe.stderr.read()


class TestKilledPipe:
    def test_its_claims_are_given_back_and_those_of_others_are_not(self, place, hv):
        hv.add([NewTask("a"), NewTask("b")])
        with talk(place) as client, talk(place) as other:
            for each in (client, other):
                each.greet()
            mine = client.call("claim_next_task")["tasks"][0]
            theirs = other.call("claim_next_task")["tasks"][0]
            client.pipe.kill()
            client.pipe.wait()
            wait_for(lambda: state(hv, mine["id"]) == "active")
            assert other.call("heartbeat", tokens=[theirs["token"]])["lost"] == []
            assert only_server(place)
