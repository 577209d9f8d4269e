"""A stand-in for agent programs: speaks the streams of claude, codex and gemini, and acts out
what the real ones do, the bad things too.

What it does is told by its prompt: `act-NAME` or `act-NAME-ARGUMENT` anywhere in it. A session is
kept in its HOME, so that a resumed one knows what it was at. Its provider is a folder
(STANDIN_PROVIDER): every request is a line in `requests`, and while the time in `limit` is not
over, the answer is 429. `main` is called by little scripts named fake-claude, fake-codex and
fake-gemini that `install` writes; it imports nothing of Hypervisor.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

KINDS = ("claude", "codex", "gemini")
COST = 0.10  # of one request, in the stream of claude
TOKENS = (1000, 20)
FOR_EVER = 3600.0


def install(folder: Path) -> dict[str, str]:
    """The three programs, by kind; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for kind in KINDS:
        path = folder / f"fake-{kind}"
        words = shlex.join([sys.executable, "-I", "-S", __file__, kind])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
        made[kind] = str(path)
    return made


def config(folder: Path, grace: str = "2s", **more: str) -> str:
    """Tables for config.toml: profiles fake-claude, fake-codex and fake-gemini."""
    programs = install(folder / "bin")
    provider = folder / "provider"
    provider.mkdir(exist_ok=True)
    text = ""
    for kind, program in programs.items():
        text += f"""
[agents.fake-{kind}]
like = "{kind}"
program = "{program}"
keys = ["STANDIN_KEY", "STANDIN_SECOND_KEY"]
login = []
provider = "standin-{kind}"
grace = "{grace}"
env = {{ STANDIN_PROVIDER = "{provider}" }}
"""
        text += "".join(f"{name} = {value}\n" for name, value in more.items())
    return text


# The streams


class Voice:
    """What the three have in common: the session and what it has used."""

    def __init__(self, session: str, earlier: int) -> None:
        self.session, self.requests, self.earlier = session, 0, earlier
        self.denied: list[str] = []
        self.tools = 0

    def line(self, **event: Any) -> None:
        os.write(1, json.dumps(event).encode() + b"\n")

    def err(self, text: str) -> None:
        os.write(2, text.encode() + b"\n")

    def begin(self, mcp: str = "connected") -> None: ...
    def tool(self, name: str = "Bash", answer: str = "fine") -> None: ...
    def deny(self, name: str = "Bash") -> None: ...
    def say(self, text: str) -> None: ...
    def retry(self, status: int, words: str) -> None: ...
    def fail(self, status: int, words: str) -> int:
        raise NotImplementedError

    def broken(self) -> int:
        raise NotImplementedError

    def end(self, text: str = "", report: Any = None) -> None: ...


class Claude(Voice):
    def event(self, type: str, **more: Any) -> None:
        self.line(type=type, session_id=self.session, **more)

    def begin(self, mcp: str = "connected") -> None:
        servers = [{"name": "hypervisor", "status": mcp, "source": "dynamic"}]
        self.event("system", subtype="init", mcp_servers=servers, tools=["Bash"], model="fake")

    def _message(self, *content: Any) -> None:
        usage = {"input_tokens": TOKENS[0], "output_tokens": 1, "cache_read_input_tokens": 0}
        self.event(
            "assistant",
            message={"id": f"msg_{self.requests}", "role": "assistant", "content": list(content),
                     "usage": usage},
        )  # fmt: skip

    def tool(self, name: str = "Bash", answer: str = "fine") -> None:
        self.tools += 1
        use = f"toolu_{self.tools}"
        self._message({"type": "tool_use", "id": use, "name": name, "input": {"command": "x"}})
        result = {"type": "tool_result", "tool_use_id": use, "content": answer, "is_error": False}
        self.event("user", message={"role": "user", "content": [result]})

    def deny(self, name: str = "Bash") -> None:
        self.denied.append(name)
        self.event("system", subtype="permission_denied", tool_name=name, tool_use_id="toolu_x")
        result = {"type": "tool_result", "tool_use_id": "toolu_x", "is_error": True,
                  "content": f"Permission to use {name} has been denied"}  # fmt: skip
        self.event("user", message={"role": "user", "content": [result]})

    def say(self, text: str) -> None:
        self._message({"type": "text", "text": text})

    def retry(self, status: int, words: str) -> None:
        error = {429: "rate_limit", 401: "authentication_failed"}.get(status, "server_error")
        self.event(
            "system", subtype="api_retry", attempt=1, max_retries=10, retry_delay_ms=60_000,
            error_status=status, error=error,
        )  # fmt: skip

    def fail(self, status: int, words: str) -> int:
        self._result(f"API Error: {status} {words}", is_error=True, api_error_status=status)
        return 1

    def broken(self) -> int:
        self._result("API Error: Connection error.", is_error=True, terminal_reason="api_error")
        return 1

    def end(self, text: str = "", report: Any = None) -> None:
        more = {} if report is None else {"structured_output": report}
        self._result(text, **more)

    def _result(self, text: str, **more: Any) -> None:
        given = TOKENS[0] * self.requests, TOKENS[1] * self.requests
        cost = round(COST * self.requests, 6)
        usage = {"input_tokens": given[0], "output_tokens": given[1], "cache_read_input_tokens": 0,
                 "cache_creation_input_tokens": 0}  # fmt: skip
        of_model = {"inputTokens": given[0], "outputTokens": given[1], "cacheReadInputTokens": 0,
                    "cacheCreationInputTokens": 0, "costUSD": cost}  # fmt: skip
        event = {
            "subtype": "success", "is_error": False, "num_turns": self.requests, "result": text,
            "usage": usage, "total_cost_usd": round(COST * (self.requests + self.earlier), 6),
            "modelUsage": {"fake": of_model}, "api_error_status": None,
            "model_usage_since_last_result": {"fake": of_model},
            "permission_denials": [{"tool_name": name} for name in self.denied],
            "terminal_reason": "completed", **more,
        }  # fmt: skip
        self.event("result", **event)


class Codex(Voice):
    def begin(self, mcp: str = "connected") -> None:
        if mcp != "connected":
            self.err("Error: thread/start: required MCP servers failed to initialize: hypervisor")
            sys.exit(1)
        self.line(type="thread.started", thread_id=self.session)
        self.line(type="turn.started")

    def tool(self, name: str = "Bash", answer: str = "fine") -> None:
        self.tools += 1
        item = {"id": f"item_{self.tools}", "type": "command_execution", "command": "x",
                "aggregated_output": answer, "exit_code": 0, "status": "completed"}  # fmt: skip
        self.line(type="item.started", item={**item, "status": "in_progress", "exit_code": None})
        self.line(type="item.completed", item=item)

    def deny(self, name: str = "Bash") -> None:
        """It does not tell."""

    def say(self, text: str) -> None:
        self.line(type="item.completed", item={"id": "m", "type": "agent_message", "text": text})

    def retry(self, status: int, words: str) -> None:
        self.line(type="error", message=f"Reconnecting... 1/5 (last status: {status} {words})")

    def fail(self, status: int, words: str) -> int:
        message = f"exceeded retry limit, last status: {status} {words}"
        self.line(type="error", message=message)
        self.line(type="turn.failed", error={"message": message})
        return 1

    def broken(self) -> int:
        message = "stream disconnected before completion: Transport error: network error"
        self.line(type="turn.failed", error={"message": message})
        return 1

    def end(self, text: str = "", report: Any = None) -> None:
        if text or report is not None:
            self.say(text or json.dumps(report))
        used = self.requests + self.earlier
        usage = {"input_tokens": TOKENS[0] * used, "cached_input_tokens": 0,
                 "output_tokens": TOKENS[1] * used}  # fmt: skip
        self.line(type="turn.completed", usage=usage)


class Gemini(Voice):
    def begin(self, mcp: str = "connected") -> None:
        if mcp != "connected":
            self.err("MCP issues detected. Run /mcp list for status.")
        self.line(type="init", session_id=self.session, model="fake")

    def tool(self, name: str = "Bash", answer: str = "fine") -> None:
        self.tools += 1
        self.line(type="tool_use", tool_name=name, tool_id="t", parameters={"command": "x"})
        self.line(type="tool_result", tool_id="t", status="success", output=answer)

    def deny(self, name: str = "Bash") -> None:
        self.say(f"NO SUCH TOOL: {name}")

    def say(self, text: str) -> None:
        self.line(type="message", role="assistant", content=text, delta=True)

    def retry(self, status: int, words: str) -> None:
        told = json.dumps({"error": {"code": status, "message": words}})
        self.err(
            f"Attempt 1 failed with status {status}. Retrying with backoff... _ApiError: {told}"
        )

    def fail(self, status: int, words: str) -> int:
        told = json.dumps({"error": {"code": status, "message": words}})
        self.err(f"Error when talking to Gemini API _ApiError: {told}")
        self.result("error", error={"type": "unknown", "message": f"[API Error: {told}]"})
        return status & 255

    def broken(self) -> int:
        self.result("error", error={"type": "unknown", "message": "[API Error: terminated]"})
        return 1

    def end(self, text: str = "", report: Any = None) -> None:
        if text or report is not None:
            self.say(text or json.dumps(report))
        self.result("success")

    def result(self, status: str, **more: Any) -> None:
        stats = {"input_tokens": TOKENS[0] * self.requests, "cached": 0,
                 "output_tokens": TOKENS[1] * self.requests, "tool_calls": self.tools}  # fmt: skip
        self.line(type="result", status=status, stats=stats, **more)


VOICES: dict[str, type[Voice]] = {"claude": Claude, "codex": Codex, "gemini": Gemini}


# One run


class Run:
    def __init__(self, kind: str, argv: list[str]) -> None:
        self.kind, self.argv = kind, argv
        self.prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
        self.home = Path(os.environ["HOME"])
        self.provider = Path(os.environ["STANDIN_PROVIDER"])
        self.resumes = _resumed(kind, argv)
        self.kept = self._kept()
        self.act, self.argument = self.kept["act"], self.kept["argument"]
        self.voice = VOICES[kind](self.kept["session"], self.kept["requests"])

    def _kept(self) -> dict[str, Any]:
        folder = self.home / ".standin"
        folder.mkdir(exist_ok=True)
        if self.resumes:
            path = folder / f"{self.resumes}.json"
            if not path.exists():
                self._no_such_session()
            return {**json.loads(path.read_text()), "resumed": True}
        found = re.search(r"act-([a-z0-9]+)(?:-([A-Za-z0-9]+))?", self.prompt)
        name, argument = (found[1], found[2] or "") if found else ("ok", "")
        session = str(uuid.uuid4())
        return {"session": session, "act": name, "argument": argument, "requests": 0}

    def keep(self) -> None:
        """As the real ones do all the time: after a kill, this is what is left."""
        used = self.voice.requests + self.voice.earlier
        path = self.home / ".standin" / f"{self.voice.session}.json"
        path.write_text(json.dumps({**self.kept, "requests": used, "resumed": False}))

    def note(self, name: str, *words: object) -> None:
        line = " ".join(map(str, (int(time.time() * 1000), os.getpid(), *words))) + "\n"
        with open(self.provider / name, "ab", buffering=0) as file:
            file.write(line.encode())

    def ask(self) -> None:
        """One request to the provider. A limit ends the run as the real ones do: late."""
        limit = self.provider / "limit"
        until = float(limit.read_text() or 0) if limit.exists() else 0.0
        answer = 429 if time.time() < until else 200
        self.note("requests", os.environ.get("HV_TASK", "-"), answer)
        if answer == 429:
            self.limited(until)
        self.voice.requests += 1
        self.keep()

    def limited(self, until: float) -> NoReturn:
        """Tell it, and go on trying."""
        if self.kind == "claude":
            info = {"status": "rejected", "resetsAt": int(until) + 1, "rateLimitType": "five_hour"}
            self.voice.line(
                type="rate_limit_event", rate_limit_info=info, session_id=self.voice.session
            )
        seconds = max(until - time.time(), 1)
        self.voice.retry(429, f"Too Many Requests, please try again in {seconds:.0f}s")
        time.sleep(2)  # a worker that sees a limit has ended us long since
        self.note("requests", os.environ.get("HV_TASK", "-"), 429)
        sys.exit(self.voice.fail(429, "Too Many Requests"))

    def _no_such_session(self) -> NoReturn:
        if self.kind == "codex":
            os.write(2, b"Error: thread/resume failed: no rollout found for thread id x\n")
        elif self.kind == "gemini":
            os.write(2, b"Error resuming session: No previous sessions found for this project.\n")
            sys.exit(42)
        else:
            text = f"No conversation found with session ID: {self.resumes}"
            event = {"type": "result", "subtype": "error_during_execution", "is_error": True,
                     "num_turns": 0, "session_id": self.resumes, "errors": [text]}  # fmt: skip
            os.write(1, json.dumps(event).encode() + b"\n")
            os.write(2, text.encode() + b"\n")
        sys.exit(1)

    def report(self, status: str = "completed", **more: Any) -> None:
        """In the way the program was asked to: by the schema, or as a last line."""
        report = {"status": status, "summary": f"did {self.act}", **more}
        if self.kind == "claude" and "--json-schema" in self.argv:
            return self.voice.end("as asked", report)
        if self.kind == "codex" and "--output-schema" in self.argv:
            return self.voice.end("", report)
        told = " / ".join(str(more.get(name, "-")) for name in ("reason", "evidence", "next_step"))
        words = {"completed": f"COMPLETED: did {self.act}"}.get(status, f"{status.upper()}: {told}")
        return self.voice.end(f"I looked.\n{words}")


# What it acts out. Each returns its exit code.

ACTS: dict[str, Callable[[Run], int | None]] = {}


def act(function: Callable[[Run], int | None]) -> Callable[[Run], int | None]:
    ACTS[function.__name__] = function
    return function


@act
def ok(run: Run) -> None:
    """All is well, after so many requests."""
    run.voice.begin()
    for _ in range(int(run.argument or 1)):
        run.ask()
        run.voice.tool()
    run.report(receipts=["looked at it"])


@act
def slow(run: Run) -> None:
    """So many requests with a pause after each."""
    run.voice.begin()
    for _ in range(int(run.argument or 5) - run.voice.earlier):
        run.ask()
        run.voice.tool()
        time.sleep(0.3)
    run.report()


@act
def together(run: Run) -> None:
    """A request, then so many wait for each other before the next."""
    run.voice.begin()
    if not run.kept.get("resumed"):
        run.ask()
        run.note("together", os.environ.get("HV_TASK", "-"))
        wait_until(lambda: (run.provider / "go").exists())
    run.ask()
    run.voice.tool()
    run.report()


@act
def denied(run: Run) -> None:
    """Every tool is refused, and it ends with 0 all the same."""
    run.voice.begin()
    run.ask()
    run.voice.deny("Bash")
    run.ask()
    run.voice.end("I could not do it.")


@act
def nothing(run: Run) -> None:
    run.voice.begin()
    run.ask()
    run.voice.end("Shall I go on?")


@act
def blocked(run: Run) -> None:
    run.voice.begin()
    run.ask()
    run.voice.tool()
    run.report("blocked", reason="no key", evidence="file a.py line 3", next_step="give it one")


@act
def failed(run: Run) -> None:
    run.voice.begin()
    run.ask()
    run.voice.tool()
    run.report("failed", reason="it cannot be done", evidence="seen", next_step="drop it")


@act
def mcpdead(run: Run) -> None:
    run.voice.begin("failed")
    run.ask()
    run.voice.end("I have no such tools.")


@act
def errorinstream(run: Run) -> int:
    """An error in the middle of an answer; gemini calls that a success."""
    run.voice.begin()
    run.ask()
    run.voice.say("I begin")
    if isinstance(run.voice, Gemini):
        run.voice.line(
            type="error", severity="error", message="Model stream ended without a finish reason."
        )
        run.voice.result("success")
        return 0
    return run.voice.fail(500, "The server had an error while processing your request")


@act
def hang(run: Run) -> None:
    """Its last word is said, and it does not end."""
    run.voice.begin()
    run.ask()
    run.voice.tool()
    run.report()
    time.sleep(FOR_EVER)


@act
def hangsilent(run: Run) -> None:
    run.voice.begin()
    run.ask()
    run.voice.end("Shall I go on?")
    time.sleep(FOR_EVER)


@act
def auth(run: Run) -> int:
    run.voice.begin()
    run.note("requests", "-", 401)
    run.voice.retry(401, "Unauthorized: invalid x-api-key")
    time.sleep(1)
    return run.voice.fail(401, "Unauthorized: invalid x-api-key")


@act
def status(run: Run) -> int:
    """The provider's answer is always this."""
    run.voice.begin()
    run.note("requests", "-", run.argument)
    words = {"400": "Bad Request", "500": "Internal Server Error", "529": "Overloaded"}
    return run.voice.fail(int(run.argument), words.get(run.argument, "Error"))


@act
def retries(run: Run) -> None:
    """The provider's answer is this, and the program tries again for ever."""
    run.voice.begin()
    while True:
        run.note("requests", "-", run.argument)
        run.voice.retry(int(run.argument), "Too Many Requests")
        time.sleep(0.5)


@act
def network(run: Run) -> int:
    """The connection breaks, time and again."""
    run.voice.begin()
    return run.voice.broken()


@act
def crash(run: Run) -> int:
    run.voice.begin()
    run.ask()
    return 3


@act
def mute(run: Run) -> int:
    """Not a word, and 0."""
    return 0


@act
def polite(run: Run) -> None:
    """At SIGTERM it ends with 0 and without a word."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    run.voice.begin()
    run.ask()
    run.note("waiting", os.environ.get("HV_TASK", "-"))
    time.sleep(FOR_EVER)


@act
def killed(run: Run) -> None:
    """Half of the work, then it waits to be killed. Resumed, it does the other half."""
    work = Path.cwd() / f"work-{os.environ.get('HV_TASK', 'none')}"
    run.voice.begin()
    run.ask()
    if not run.kept.get("resumed"):
        work.write_text("first half\n")
        run.note("waiting", os.environ.get("HV_TASK", "-"), run.voice.session)
        time.sleep(FOR_EVER)
    with open(work, "a") as file:
        file.write("second half\n")
    run.voice.tool()
    run.report()


@act
def lost(run: Run) -> int | None:
    """The first time it is killed by a limit and its sessions are gone after that."""
    path = Path.cwd() / f"lost-{os.environ.get('HV_TASK', 'none')}"
    run.voice.begin()
    if path.exists():
        run.ask()
        run.report()
        return 0
    run.ask()
    path.write_text("once")
    (run.home / ".standin" / f"{run.voice.session}.json").unlink()
    return 3


@act
def escape(run: Run) -> None:
    """A shell command with children that leave its session; all of them stay."""
    run.voice.begin()
    run.ask()
    code = (
        "import os, signal, sys, time\n"
        "for _ in range(2):\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    os.setsid()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
        "time.sleep(3600)\n"
    )
    roster = str(run.provider / "roster")
    for env in ({**os.environ}, {"PATH": os.defpath}):
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, roster], start_new_session=True, env=env
        )
    subprocess.Popen(["sh", "-c", f"echo $$ >> {roster}; sleep 3600; true"])
    with open(roster, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(FOR_EVER)


@act
def leaks(run: Run) -> None:
    """It tells all it knows, whole, in pieces, in JSON and on the other channel."""
    run.voice.begin()
    run.ask()
    access = _mcp_access(run)
    known = [value for name, value in os.environ.items() if "KEY" in name]
    known += [value for name, value in access["env"].items() if "TOKEN" in name]
    for value in known:
        run.voice.say(f"I know {value}!")
        run.voice.tool("Bash", json.dumps({"inner": value}))
        run.voice.err(f"warning: {value}")
        for letter in f"slowly: {value}\n".encode():
            os.write(2, bytes([letter]))
    run.voice.tool("Bash", json.dumps(access))
    run.voice.tool("Bash", json.dumps(dict(os.environ)))
    run.report(reason=" ".join(known), evidence=" ".join(known), receipts=known, data=known)


@act
def tells(run: Run) -> None:
    """What it was given: its environment, its words, its folders."""
    run.voice.begin()
    run.ask()
    told = {"env": dict(os.environ), "argv": run.argv, "cwd": os.getcwd(), "prompt": run.prompt,
            "home": sorted(str(p.relative_to(run.home)) for p in run.home.rglob("*"))}  # fmt: skip
    (run.provider / f"told-{os.environ.get('HV_TASK', 'none')}").write_text(json.dumps(told))
    run.voice.tool()
    run.report()


@act
def flood(run: Run) -> None:
    """Megabytes of lines, and one line of megabytes."""
    run.voice.begin()
    run.ask()
    for _ in range(2_000):
        run.voice.tool("Bash", "x" * 1_000)
    os.write(2, b"")
    for _ in range(200):
        _write_all(1, b"y" * 100_000)
    _write_all(1, b"\n")
    run.report()


@act
def drown(run: Run) -> None:
    """It never stops printing."""
    run.voice.begin()
    while True:
        _write_all(1, b"z" * 1_000 + b"\n")


@act
def edits(run: Run) -> None:
    """It changes a file and makes another."""
    run.voice.begin()
    run.ask()
    with open("a.txt", "a") as file:
        file.write("changed by the agent\n")
    Path("new.txt").write_text("made by the agent\n")
    run.voice.tool()
    run.report()


@act
def completes(run: Run) -> int:
    """It ends its claim itself, then lies about the rest."""
    run.voice.begin()
    run.ask()
    access = _mcp_access(run)
    token = access["env"]["HV_TOKEN"]
    hv = [access["command"], *access["args"][: access["args"].index("mcp")]]
    words = ["done", token, "--result", '{"summary": "by itself"}']
    subprocess.run([*hv, *words], env=access["env"], check=True, stdout=subprocess.DEVNULL)
    run.voice.tool("mcp__hypervisor__complete_task")
    return 7


@act
def mcp(run: Run) -> None:
    """It ends its claim over MCP."""
    run.voice.begin()
    run.ask()
    with Mcp(_mcp_access(run)) as server:
        server.call("complete_task", {"summary": "over MCP"})
    run.voice.tool("mcp__hypervisor__complete_task")
    run.voice.end("I looked.\nCOMPLETED")


@act
def pull(run: Run) -> int | None:
    """It claims and completes task after task."""
    run.voice.begin()
    with Mcp(_mcp_access(run)) as server:
        while True:
            run.ask()
            answer = server.call("claim_next_task", {"caller": "standin"})
            token = re.search(r"\b[0-9a-z]{12}\.\d+\.[0-9a-z]{4}\b", json.dumps(answer))
            if token is None:
                break
            run.note("claimed", token[0])
            if run.argument == "holds":
                time.sleep(FOR_EVER)
            if run.argument == "leaves":
                return 3
            run.ask()
            server.call("complete_task", {"token": token[0], "summary": "pulled"})
            run.note("done", token[0])
    run.voice.end("QUEUE EMPTY: all done")
    return None


class Mcp:
    """Just enough of a client: JSON lines to a server and back."""

    def __init__(self, access: dict[str, Any]) -> None:
        self._server = subprocess.Popen(
            [access["command"], *access["args"]], env=access["env"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self._number = 0

    def __enter__(self) -> Mcp:
        info = {"name": "standin", "version": "1"}
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self._ask("initialize", given)
        self._tell({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return self._ask("tools/call", {"name": name, "arguments": arguments})

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._tell({"id": self._number, "method": method, "params": params})
        assert self._server.stdout is not None
        for line in self._server.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer.get("result") or answer
        raise SystemExit("the MCP server has gone")

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._server.stdin.flush()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def _mcp_access(run: Run) -> dict[str, Any]:
    """How the MCP server is started, from where this kind of program reads it."""
    if run.kind == "codex":
        import tomllib

        path = Path(os.environ["CODEX_HOME"]) / "config.toml"
        found: dict[str, Any] = tomllib.loads(path.read_text())["mcp_servers"]["hypervisor"]
        return found
    path = run.home / ".gemini/settings.json"
    if run.kind == "claude":
        path = Path(run.argv[run.argv.index("--mcp-config") + 1])
    entry: dict[str, Any] = json.loads(path.read_text())["mcpServers"]["hypervisor"]
    return entry


def _resumed(kind: str, argv: list[str]) -> str:
    if kind == "codex":
        return argv[-2] if "resume" in argv else ""
    return argv[argv.index("--resume") + 1] if "--resume" in argv else ""


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def main(kind: str, argv: list[str]) -> int:
    if argv == ["--version"]:
        print(f"1.2.3 (fake {kind})")
        return 0
    run = Run(kind, argv)
    return ACTS[run.act](run) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
