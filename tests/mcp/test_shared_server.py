"""The server that all clients of a store share: there is one, it ends when idle, and clients
continue with another when it dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hypervisor import NewTask
from hypervisor.mcp import address
from hypervisor.mcp.address import address_of
from tests.mcp.conftest import Place, wait_for
from tests.mcp.talk import initialize, request, talk, tool
from tests.support.mcp_servers import end_mcp_servers, mcp_servers, only_server

AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.shutdown(socket.SHUT_WR)
print(connection.recv(100))
"""
PATIENT = """
from hypervisor.app import connect
from hypervisor.mcp import shared_server
shared_server.run(connect)
"""
IMPATIENT = """
from hypervisor.app import connect
from hypervisor.mcp import shared_server
shared_server.IDLE = 0.5
shared_server.run(connect)
"""


def socket_of(place):
    return address_of(place.path, place.env)


def listen(place):
    """Listen in place of the server."""
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
        monkeypatch.setattr(address, "__version__", "0.0.0")
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
        """Whatever the file permissions are."""
        with talk(place) as client:
            client.greet()
            path = socket_of(place)
            home, folder = os.path.dirname(os.path.dirname(path)), os.path.dirname(path)
            try:
                for _ in range(20):  # a server that starts now closes the folders again
                    for name, mode in ((home, 0o711), (folder, 0o711), (path, 0o666)):
                        os.chmod(name, mode)
                    done = subprocess.run(
                        [sys.executable, "-I", "-c", AS_NOBODY, path],
                        capture_output=True,
                        text=True,
                        timeout=180,
                    )
                    if done.stdout:
                        break
            finally:
                for name in (home, folder):
                    os.chmod(name, 0o700)
            assert done.stdout.strip() == "b''", done.stderr
            assert client.ask(request("ping"))["result"] == {}
            wait_for(lambda: "refused a connection from user 65534" in log_text(place))


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
        assert server.wait(120) == 0
        assert not os.path.exists(socket_of(place))

    def test_it_ends_if_nobody_ever_comes(self, place):
        server = subprocess.Popen(
            [sys.executable, "-I", "-c", IMPATIENT],
            stdin=subprocess.DEVNULL,
            env={**place.env, "HYPERVISOR_STORE": place.path},
        )
        assert server.wait(120) == 0
        assert not os.path.exists(socket_of(place))

    def test_asked_to_end_before_the_first_client_it_removes_its_socket(self, place):
        server = subprocess.Popen(
            [sys.executable, "-I", "-c", PATIENT],
            stdin=subprocess.DEVNULL,
            env={**place.env, "HYPERVISOR_STORE": place.path},
        )
        wait_for(lambda: os.path.exists(socket_of(place)))
        wait_for(lambda: _catches(server.pid, signal.SIGTERM))
        server.terminate()
        assert server.wait(180) == 0
        assert not os.path.exists(socket_of(place))

    def test_a_second_one_leaves_the_first_alone(self, place):
        with talk(place) as client:
            client.greet()
            second = subprocess.run(
                [sys.executable, "-I", "-c", IMPATIENT],
                stdin=subprocess.DEVNULL,
                env={**place.env, "HYPERVISOR_STORE": place.path},
                timeout=180,
            )
            assert second.returncode == 0 and os.path.exists(socket_of(place))
            assert client.ask(request("ping"))["result"] == {}

    def test_told_to_end_it_finishes_what_is_under_way(self, place, hv):
        with talk(place) as client:
            client.greet()
            first = only_server(place)
            client.send(tool("wait_for_events", 3, cursor="c", timeout=0.8))
            wait_for(client.is_passed_on)
            os.kill(first, signal.SIGTERM)
            assert "result" in client.read()
            wait_for(lambda: first not in mcp_servers(place.folder))
            assert client.ask(request("ping", 4)) == {"jsonrpc": "2.0", "id": 4, "result": {}}
            assert only_server(place) != first


def _catches(pid, number):
    status = Path(f"/proc/{pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return int(caught, 16) >> (number - 1) & 1


class TestBadClients:
    @pytest.mark.parametrize("line", [b"", b"nonsense\n", b"[]\n", b'{"tools": 1}\n', b"\xff\n"])
    def test_a_client_without_a_hello_is_dropped(self, place, line):
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


def test_a_store_that_was_replaced_is_opened_again(place):
    """The server outlives it: a later client must not use the old one."""
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
    """A stand-in for the server sees the first line of a pipe."""
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
