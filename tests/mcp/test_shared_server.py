"""The server that all clients of a store share: there is one, it ends when idle, and clients go on
with another when it dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from hypervisor import NewTask
from hypervisor.mcp import address
from hypervisor.mcp.address import address_of
from hypervisor.mcp.pipe import MOST_STARTS
from tests.mcp.conftest import Place, wait_for
from tests.mcp.talk import initialize, request, talk, tool
from tests.support.mcp_servers import end_mcp_servers, mcp_servers

AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.shutdown(socket.SHUT_WR)
print(connection.recv(100))
"""
IMPATIENT = """
from hypervisor.app import connect
from hypervisor.mcp import shared_server
shared_server.IDLE = 0.5
shared_server.run(connect)
"""


@pytest.fixture
def hv(place):
    with place.open() as opened:
        yield opened


def only_server(place):
    [server] = mcp_servers(place.folder)
    return server


def kill_server(place):
    server = only_server(place)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: server not in mcp_servers(place.folder))


def state(hv, task):
    return hv.show(task).detail.task.state


def socket_of(place):
    return address_of(place.path, place.env)


def listen(place):
    """In the place of the server."""
    listening = address.listen(socket_of(place))
    assert listening is not None
    return listening


class TestOneServer:
    def test_ten_pipes_at_once_share_one(self, place):
        clients = [talk(place) for _ in range(10)]
        opened = [client.__enter__() for client in clients]
        for client in opened:
            client.send(initialize())
        for client in opened:
            assert client.read()["id"] == 0
        only_server(place)
        for client in clients:
            client.__exit__(None, None, None)

    def test_each_client_has_the_tools_it_asked_for(self, place):
        with talk(place, "worker") as worker, talk(place, "supervisor") as supervisor:
            tools = []
            for client in (worker, supervisor):
                client.greet()
                answer = client.ask(request("tools/list"))
                tools.append({tool["name"] for tool in answer["result"]["tools"]})
            assert "claim_next_task" in tools[0] - tools[1]
            assert "spawn_parallel_tasks" in tools[1] - tools[0]
            only_server(place)

    def test_two_stores_have_two(self, place, tmp_path):
        (tmp_path / "other").mkdir()
        other = Place(tmp_path / "other")
        with talk(place) as client, talk(other) as another:
            client.greet()
            another.greet()
            client.call("create_task", title="Look")
            assert another.call("list_tasks")["tasks"] == []
            assert len(mcp_servers(tmp_path)) == 2

    def test_each_client_acts_in_its_own_name_and_folder(self, place, hv):
        for name in ("ann", "bob"):
            (place.folder / name).mkdir()
        command = ["sh", "-c", "pwd; echo $WHO"]
        with (
            talk(place, env={"HV_ACTOR": "ann", "WHO": "ann"}) as ann,
            talk(place, env={"HV_ACTOR": "bob", "WHO": "bob"}) as bob,
        ):
            for name, client in (("ann", ann), ("bob", bob)):
                client.greet()
                client.call(
                    "spawn_parallel_tasks", tasks=[name], command=command, name=name, folder=name
                )
            only_server(place)
        for name in ("ann", "bob"):
            wait_for(lambda name=name: hv.stats(name).states["done"] == 1)
            [task] = [task.id for task in hv.list_tasks() if task.title == name]
            text = hv.output(task, 1).decode()
            assert text == f"{place.folder / name}\n{name}\n"
            assert {event.actor for event in hv.events() if event.kind == "add"} >= {name}

    def test_of_another_version_it_is_not_met(self, place, monkeypatch):
        ours = socket_of(place)
        monkeypatch.setattr(address, "VERSION", "0.0.0")
        other = socket_of(place)
        monkeypatch.undo()
        monkeypatch.setattr(address, "_newest", lambda folder: 1)
        assert len({ours, other, socket_of(place)}) == 3

    def test_a_database_on_the_network_depends_on_its_variables(self):
        url = "postgresql://db/hv"
        plain = address_of(url, {"PATH": "/bin"})
        assert plain == address_of(url, {"PATH": "/usr/bin"})
        assert plain != address_of(url, {"PGPASSWORD": "secret"})

    def test_it_is_for_this_user_alone(self, place):
        with talk(place) as client:
            client.greet()
            path = socket_of(place)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            folder = os.stat(os.path.dirname(path))
            assert stat.S_IMODE(folder.st_mode) == 0o700 and folder.st_uid == os.getuid()

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
    def test_another_user_who_reaches_the_socket_is_refused(self, place, tmp_path):
        """Whatever the modes of files say."""
        with talk(place) as client:
            client.greet()
            path = socket_of(place)
            home, folder = os.path.dirname(os.path.dirname(path)), os.path.dirname(path)
            try:
                for _ in range(20):  # whoever starts meanwhile closes the folders again
                    for name, mode in ((home, 0o711), (folder, 0o711), (path, 0o666)):
                        os.chmod(name, mode)
                    done = subprocess.run(
                        [sys.executable, "-I", "-c", AS_NOBODY, path],
                        capture_output=True,
                        text=True,
                        timeout=60,
                    )
                    if done.stdout:
                        break
            finally:
                for name in (home, folder):
                    os.chmod(name, 0o700)
            assert done.stdout.strip() == "b''", done.stderr
            assert client.ask(request("ping"))["result"] == {}
            wait_for(lambda: "refused a connection of user 65534" in log_text(place))


def log_text(place):
    for path in (place.folder / "mcp.log", socket_of(place).replace(".sock", ".log")):
        if os.path.exists(path):
            with open(path) as file:
                return file.read()
    return ""


class TestItsEnd:
    def test_it_ends_when_it_has_been_idle(self, place):
        with listen(place) as listening:
            server = subprocess.Popen(
                [sys.executable, "-I", "-c", IMPATIENT],
                stdin=listening,
                env={**place.env, "HYPERVISOR_STORE": place.path},
            )
        with talk(place) as client:
            client.greet()
            time.sleep(1.0)  # it has a client
            assert server.poll() is None
            client.leave()
        assert server.wait(30) == 0
        assert not os.path.exists(socket_of(place))

    def test_it_ends_if_nobody_ever_comes(self, place):
        server = subprocess.Popen(
            [sys.executable, "-I", "-c", IMPATIENT],
            stdin=subprocess.DEVNULL,
            env={**place.env, "HYPERVISOR_STORE": place.path},
        )
        assert server.wait(30) == 0
        assert not os.path.exists(socket_of(place))

    def test_a_second_one_leaves_the_first_alone(self, place):
        with talk(place) as client:
            client.greet()
            second = subprocess.run(
                [sys.executable, "-I", "-c", IMPATIENT],
                stdin=subprocess.DEVNULL,
                env={**place.env, "HYPERVISOR_STORE": place.path},
                timeout=60,
            )
            assert second.returncode == 0 and os.path.exists(socket_of(place))
            assert client.ask(request("ping"))["result"] == {}

    def test_told_to_end_it_finishes_what_is_under_way(self, place, hv):
        with talk(place) as client:
            client.greet()
            first = only_server(place)
            client.send(tool("wait_for_events", 3, cursor="c", timeout=0.8))
            time.sleep(0.3)
            os.kill(first, signal.SIGTERM)
            assert "result" in client.read()
            wait_for(lambda: first not in mcp_servers(place.folder))
            assert client.ask(request("ping", 4)) == {"jsonrpc": "2.0", "id": 4, "result": {}}
            assert only_server(place) != first


class TestKilledServer:
    def test_the_session_and_its_claims_go_on(self, place, hv):
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

    def test_nobody_else_gets_the_claim_meanwhile(self, place, hv):
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

    def test_a_claim_that_nobody_heard_of_is_given_back(self, place, hv):
        """The server dies after it has claimed and before it could say so."""
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
            time.sleep(0.3)
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
            for _ in range(MOST_STARTS):
                assert client.pipe.poll() is None
                wait_for(lambda: mcp_servers(place.folder), 20)
                kill_server(place)
            assert client.pipe.wait(20) == 1
            assert b"keeps ending" in client.pipe.stderr.read()


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


class TestBadClients:
    @pytest.mark.parametrize("line", [b"", b"nonsense\n", b"[]\n", b'{"tools": 1}\n', b"\xff\n"])
    def test_whoever_says_no_hello_is_dropped(self, place, line):
        with talk(place) as client:
            client.greet()
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(socket_of(place))
                stranger.sendall(line)
                stranger.shutdown(socket.SHUT_WR)
                stranger.settimeout(60)
                assert stranger.recv(100) == b""
            assert client.ask(request("ping"))["result"] == {}

    def test_a_tool_that_fails_unexpectedly_is_in_the_log(self, place, hv):
        with talk(place) as client:
            client.greet()
            answer = client.ask(tool("preflight", items=["a"], folder="\0"))
            assert answer["result"]["isError"], answer
            assert "null byte" in log_text(place) and "Traceback" in log_text(place)
            assert client.ask(request("ping"))["result"] == {}

    def test_no_secret_of_a_client_is_in_a_file_or_the_environment_of_the_server(self, place, hv):
        secret = "sk-planted-4711"
        with talk(place, env={"OPENAI_API_KEY": secret, "HV_TOKEN": ""}) as client:
            client.greet()
            client.call("list_tasks")
            with open(f"/proc/{only_server(place)}/environ", "rb") as environ:
                assert secret.encode() not in environ.read()
            for folder, _, names in os.walk(place.folder):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        assert secret.encode() not in file.read(), name


def test_a_store_that_was_replaced_is_opened_anew(place):
    """The server outlives it: a client that comes later must not meet the old one."""
    with place.open() as hv:
        hv.add([NewTask("old")])
    with talk(place) as client:
        client.greet()
        assert len(client.call("list_tasks")["tasks"]) == 1
        for name in ("store.db", "store.db-wal", "store.db-shm", "store.db.lock"):
            path = place.folder / name
            path.unlink(missing_ok=True)
        with talk(place) as later:
            later.greet()
            assert later.call("list_tasks")["tasks"] == []
            only_server(place)


def test_the_log_is_beside_the_store(place, hv):
    with talk(place) as client:
        client.greet()
        assert (place.folder / "mcp.log").exists()
        assert stat.S_IMODE((place.folder / "mcp.log").stat().st_mode) == 0o600
    end_mcp_servers(place.folder)


def test_hello_and_answers_are_lines(place):
    """A stand-in for the server sees what a pipe says first."""
    with listen(place) as listening, talk(place, "worker") as client:
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as lines:
            hello = json.loads(lines.readline())
            assert hello["tools"] == "worker" and hello["store"] == place.path
            assert hello["folder"] == str(place.folder) and hello["claims"] is None
            client.send(request("ping", 1))
            lines.write(b'#{"repeatable": []}\n')
            lines.flush()
            assert json.loads(lines.readline())["id"] == 1
            lines.write(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
            lines.flush()
            assert client.read()["id"] == 1
