"""The launcher of a sandboxed attempt: stays outside, serves the sockets that lead out of it.

It starts the attempt below itself, so it is part of the attempt's process tree and ends with it.
The plan is a file that only the user can read; it is removed as soon as it has been read.
"""

from __future__ import annotations

import array
import hmac
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from hypervisor.runs.sandbox.plan import Reach, Server
from hypervisor.runs.sandbox.proxy import Proxy, forward, serve_forever

STAYS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the attempt gets them, too
NOT_FOUND, NOT_CONFINED = 127, 125


def main() -> None:
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    os.unlink(path)
    server = _listen_for_mcp(plan.get("mcp"))
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        _run(plan, theirs)
    theirs.close()
    for number in STAYS:
        signal.signal(number, signal.SIG_IGN)
    if server:
        _start(server[0], _mcp_handler(Server(**plan["mcp"]["server"]), server[1]))
    if "reach" in plan:
        threading.Thread(target=_serve_network, args=(ours, plan), daemon=True).start()
    _exit_like(os.waitpid(child, 0)[1])


def _run(plan: dict[str, Any], to_launcher: socket.socket) -> None:
    """In the child: become the attempt."""
    argv = list(plan["argv"])
    if "reach" in plan:
        os.set_inheritable(to_launcher.fileno(), True)
        argv = [str(to_launcher.fileno()) if word == "{socket}" else word for word in argv]
    try:
        if "landlock" in plan:
            from hypervisor.runs.sandbox import landlock

            landlock.confine(plan["landlock"]["read"], plan["landlock"]["write"])
    except OSError as error:
        sys.stderr.write(f"hv: the sandbox could not be set up: {error}\n")
        os._exit(NOT_CONFINED)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"cannot start {argv[0]}: {error.strerror}\n")
        os._exit(NOT_FOUND)


def _listen_for_mcp(mcp: dict[str, Any] | None) -> tuple[socket.socket, str] | None:
    """A socket for the agent's MCP client, and its address inside, which is written to a file."""
    if mcp is None:
        return None
    if mcp["path"]:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(mcp["path"])
        address = mcp["inside"]
    else:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind(("127.0.0.1", 0))
        address = f"{listening.getsockname()[1]}:{mcp['secret']}"
    listening.listen(16)
    # The agent's home may be that of an earlier attempt, which may have left a link there.
    with suppress(FileNotFoundError):
        os.unlink(mcp["address_file"])
    handle = os.open(mcp["address_file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(address)
    return listening, address


def _mcp_handler(server: Server, address: str) -> Any:
    """Runs a server for each connection, with the connection as its stdin and stdout."""
    secret = "" if address.startswith("/") else address.partition(":")[2]

    def handle(client: socket.socket) -> None:
        if secret and not hmac.compare_digest(_line(client), secret.encode()):
            return
        out = os.dup(client.fileno())
        try:
            pid = os.posix_spawn(
                server.argv[0],
                server.argv,
                server.env,
                file_actions=[(os.POSIX_SPAWN_DUP2, out, 0), (os.POSIX_SPAWN_DUP2, out, 1)],
                setsigdef=STAYS,
            )
        finally:
            os.close(out)
        os.waitpid(pid, 0)

    return handle


def _line(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) < 200:
        piece = client.recv(1)
        if not piece:
            break
        received += piece
    return received.rstrip(b"\n")


def _serve_network(ours: socket.socket, plan: dict[str, Any]) -> None:
    """Receive the sockets that were created inside, and serve them."""
    hosts, ports, upstream = plan["reach"]
    reach = Reach(tuple(hosts), tuple(ports), upstream)
    size = array.array("i").itemsize * (1 + len(reach.ports))
    _, messages, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(size))
    if not messages:  # it has ended before that
        return
    handles = array.array("i")
    handles.frombytes(messages[0][2][:size])
    proxy, *others = (socket.socket(fileno=handle) for handle in handles)
    _start(proxy, Proxy(reach, plan["denials"]).serve)
    for port, listening in zip(reach.ports, others, strict=True):
        _start(listening, forward(port))


def _start(listening: socket.socket, handle: Any) -> None:
    threading.Thread(target=serve_forever, args=(listening, handle), daemon=True).start()


def _exit_like(status: int) -> None:
    """End as the attempt has ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
