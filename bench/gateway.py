"""What the gateway costs: time per call against the same calls without it, and memory.

Provider, gateway and clients are processes of their own. Each call sends a request of 50 KB and
gets a stream of 53 events, as an agent in the middle of its work does. Calls with and without the
gateway take turns, so that both meet the same load of the host. Then a fleet of 16 sends requests
of 300 KB at once. Run it on a quiet machine.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from hypervisor.agents.gateway.token import SpendToken, digest_of, new_code
from hypervisor.app import connect
from hypervisor.queue.add import add
from hypervisor.queue.agent_session import NewSession
from hypervisor.queue.claim import claim
from hypervisor.queue.context import Context
from hypervisor.queue.sql import agent_sessions
from hypervisor.queue.task import NewTask
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import AgentSpec, RunSpec, spec_data

CALLS, WARM_UP = 400, 30
FLEET, FLEET_CALLS = 16, 20
REQUEST, LARGE_REQUEST = 50_000, 300_000
EVENTS = 53
KEY = "sk-bench"
LIMIT_MS, LIMIT_MB = 2.0, 40.0
PROVIDER = """
import asyncio, json
delta = {"type": "content_block_delta", "delta": {"text": "word " * 4}}
event = b"data: " + json.dumps(delta).encode()
last = {"type": "message_delta", "usage": {"input_tokens": 12000, "output_tokens": 200}}
body = (event + b"\\n\\n") * EVENTS_BUT_ONE + b"data: " + json.dumps(last).encode() + b"\\n\\n"
pieces = [line + b"\\n\\n" for line in body.split(b"\\n\\n")[:-1]]
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n"
head += b"transfer-encoding: chunked\\r\\n\\r\\n"
async def serve(reader, writer):
    try:
        while True:
            text = await reader.readuntil(b"\\r\\n\\r\\n")
            lines = [line.lower() for line in text.split(b"\\r\\n")]
            size = next(int(line.split(b":")[1]) for line in lines if b"content-length" in line)
            await reader.readexactly(size)
            writer.write(head)
            for piece in pieces:
                writer.write(b"%x\\r\\n%s\\r\\n" % (len(piece), piece))
            writer.write(b"0\\r\\n\\r\\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
""".replace("EVENTS_BUT_ONE", str(EVENTS - 1))


class Memory(NamedTuple):
    """In MB."""

    rss: float
    pss: float


class Line:
    """A connection of an agent that is kept open."""

    def __init__(self, port: int, path: str, key: str, size: int = REQUEST) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._path, self._headers = path, {"x-api-key": key, "content-type": "application/json"}
        text = "x" * size
        self._body = json.dumps({"stream": True, "messages": [{"role": "user", "content": text}]})

    def call(self) -> float:
        """Milliseconds until the answer was complete."""
        began = time.perf_counter()
        self._connection.request("POST", self._path, self._body, self._headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        return (time.perf_counter() - began) * 1000


def memory_of(pid: int) -> Memory:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        sizes = {line.split()[0]: int(line.split()[1]) for line in file if line[0] in "RP"}
    return Memory(sizes["Rss:"] / 1024, sizes["Pss:"] / 1024)


def grant(hv: Context, number: int) -> str:
    """The spending token of a session of this process."""
    spec = RunSpec("/", AgentSpec("claude", agents=("claude",)))
    batch = hv.store.write(runs_sql.declare, f"b{number}", spec_data(spec), "bench", hv.now()).id
    hv.launcher.keep_environment(batch)
    add(hv, [NewTask(f"task {number}")], f"b{number}")
    (lease,) = claim(hv, "bench", batch=f"b{number}", pid=os.getpid())
    task, attempt, _ = lease.token.split(".")
    ((worker,),) = hv.store.read(
        lambda s: s.rows("SELECT worker FROM attempts WHERE task = ?", (task,))
    )
    code = new_code()
    new = NewSession("claude", "a", batch, worker, task, int(attempt), spend_code=digest_of(code))
    return str(SpendToken(hv.store.write(agent_sessions.open_session, new, hv.now()), code))


def start_gateway(hv: Context) -> int:
    """Its process id; as the supervisor starts it."""
    hv.launcher.start_gateway()
    lock = Path(hv.places.runtime, "gateway.lock")
    until = time.monotonic() + 30
    while not (lock.exists() and lock.read_text().isdigit()):
        assert time.monotonic() < until, "the gateway did not start"
        time.sleep(0.05)
    return int(lock.read_text())


def compare(direct: Line, through: Line) -> tuple[float, float]:
    """The medians of calls without and with it, which take turns."""
    pairs = [(direct.call(), through.call()) for _ in range(WARM_UP + CALLS)][WARM_UP:]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def load(hv: Context, port: int, pid: int) -> Memory:
    """The most that it uses while a fleet sends large requests, by RSS."""
    path = "/anthropic/v1/messages"
    lines = [Line(port, path, grant(hv, 100 + n), LARGE_REQUEST) for n in range(FLEET)]
    agents = [
        threading.Thread(target=lambda line=line: [line.call() for _ in range(FLEET_CALLS)])
        for line in lines
    ]
    for agent in agents:
        agent.start()
    most = memory_of(pid)
    while any(agent.is_alive() for agent in agents):
        most = max(most, memory_of(pid))
        time.sleep(0.02)
    return most


def main() -> int:
    folder = tempfile.mkdtemp(prefix="hv-bench-gateway-")
    provider = subprocess.Popen([sys.executable, "-I", "-c", PROVIDER], stdout=subprocess.PIPE)
    assert provider.stdout is not None
    target = int(provider.stdout.readline())
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{target}", "ANTHROPIC_API_KEY": KEY}
    data = Path(folder, ".hypervisor")
    data.mkdir(mode=0o700)
    hv = connect(str(data / "store.db"), pid=os.getpid(), environment={**os.environ, **env})
    pid = 0
    try:
        pid = start_gateway(hv)
        token, port = grant(hv, 0), hv.launcher.gateway_port() or 0
        started = memory_of(pid)
        direct = Line(target, "/v1/messages", KEY)
        without, with_it = compare(direct, Line(port, "/anthropic/v1/messages", token))
        small = memory_of(pid)
        most = load(hv, port, pid)
        after = memory_of(pid)
    finally:
        if pid:
            os.kill(pid, 15)
        provider.kill()
        runtime = hv.places.runtime
        hv.close()
        shutil.rmtree(runtime, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    added = with_it - without
    print(
        f"a call, median of {CALLS}: {without:.2f} ms direct, {with_it:.2f} ms through the gateway"
    )
    print(f"added: {added:.2f} ms (limit {LIMIT_MS})")
    print(f"memory at the start: {started.rss:.1f} MB RSS, {started.pss:.1f} MB PSS")
    print(f"after these calls: {small.rss:.1f} MB RSS, {small.pss:.1f} MB PSS")
    print(
        f"while {FLEET} agents send {LARGE_REQUEST // 1000} KB each: {most.rss:.1f} MB RSS, "
        f"{most.pss:.1f} MB PSS"
    )
    print(f"after that: {after.rss:.1f} MB RSS (limit {LIMIT_MB:.0f})")
    return int(added > LIMIT_MS or most.rss > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
