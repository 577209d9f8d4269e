"""Records what the real agent CLIs print.

Usage: `python -m tests.agents.real.record [CLI…] [--case NAME]`

Each sample is a file of JSON lines: first how it was made and how it ended, then every line with
the stream it came from. Paths of this machine are replaced, nothing else is. HV_AGENTS_DIR names
the folder of the programs.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.real import clis
from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import (
    Move,
    broken,
    call,
    drop,
    garbled,
    hang,
    refuse,
    result,
    say,
    shell,
)

STREAMS = Path(__file__).parents[2] / "fixtures/streams"
SCHEMA = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "summary": {"type": "string"}},
    "required": ["status", "summary"],
    "additionalProperties": False,
}
DONE = call("complete_task", {"token": "abcdefghijkl.1.wxyz", "summary": "looked at it"})
WORK: list[Move] = [shell("echo hello from the agent"), DONE, say("All is well.\nCOMPLETED")]
LIMIT = "Rate limit reached: too many requests per minute"
MAIN = ("claude", "codex", "gemini")
# Cases that only some of the programs have.
ONLY = {
    "max-turns": ("claude", "gemini", "qwen"),
    "own-model": ("codex",),
    **dict.fromkeys(("usage-limit", "down", "http-402", "http-403", "garbled-once"), MAIN),
}
RESET = int(time.time()) + 3600
UNIFIED = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-reset": str(RESET),
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
    "retry-after": "3600",
}
USAGE_LIMIT = {
    "error": {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_at": RESET,
        "resets_in_seconds": 3600,
    }
}
RETRY_INFO = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota. Please retry in 2.5s.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}],
    }
}
QUOTA = {
    "claude": refuse(
        429, headers=UNIFIED, error="This request would exceed your account's rate limit."
    ),
    "codex": refuse(429, body=USAGE_LIMIT),
    "gemini": refuse(429, body=RETRY_INFO),
}


class Case(NamedTuple):
    moves: list[Move]
    asking: dict[str, Any] = {}  # noqa: RUF012 - never changed
    stop: int = 0
    resume: str = ""
    limit: float = 60
    down: bool = False


CASES = {
    "success": Case(WORK),
    "own-model": Case(WORK, {"model": ""}),
    "denied": Case(
        [shell("touch forbidden.txt"), say("BLOCKED: I may not run commands")],
        {"mode": "read-only"},
    ),
    "http-400": Case([refuse(400, error="messages: text content blocks must be non-empty")]),
    "http-401": Case([refuse(401, error="invalid x-api-key")]),
    "http-402": Case([refuse(402, error="Your credit balance is too low to access the API.")]),
    "http-403": Case([refuse(403, error="Your plan does not include this model")]),
    "http-429": Case([refuse(429, retry_after=2, error=LIMIT)]),
    "http-429-once": Case([refuse(429, times=1, retry_after=1, error=LIMIT), *WORK]),
    "http-429-long": Case([refuse(429, retry_after=3600, error=LIMIT)], limit=25),
    "usage-limit": Case([], limit=40),
    "http-500": Case([refuse(500, error="Internal server error")]),
    "http-529": Case([refuse(529, error="Overloaded")]),
    "dropped-once": Case([drop(), *WORK]),
    "dropped-always": Case([drop(10**6)]),
    "down": Case(WORK, {"model": ""}, limit=25, down=True),
    "garbled-once": Case([garbled(), *WORK]),
    "error-in-stream-once": Case([broken(), *WORK]),
    "error-in-stream": Case([broken(10**6)]),
    "max-turns": Case([shell("echo again")], {"turns": 2}),
    "sigterm": Case([shell("tail -f a.py"), say("COMPLETED")], stop=signal.SIGTERM),
    "sigterm-waiting": Case([shell("echo hello"), hang()], stop=signal.SIGTERM),
    "bad-resume": Case(WORK, {"session": "00000000-0000-4000-8000-000000000000"}),
    "resume": Case(WORK, resume="once"),
    "dead-mcp": Case(WORK, {"mcp": "dead"}),
    "nothing-done": Case([say("I could look at this, if you want.")]),
    "blocked": Case([say("I stop here.\nBLOCKED: the file is not there")]),
    "structured": Case(
        [shell("echo hi"), result({"status": "completed", "summary": "done"})], {"schema": SCHEMA}
    ),
}


class EndedRun(NamedTuple):
    lines: list[tuple[str, str]]
    code: int | None
    seconds: float


def run(
    argv: list[str], env: dict[str, str], stdin: str, cwd: Path, stop: Any, limit: float
) -> EndedRun:
    """Runs a program, records its lines in order, stops it when `stop` returns true."""
    began = time.monotonic()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    ) as child:
        lines: list[tuple[str, str]] = []
        readers = [
            threading.Thread(target=_keep, args=(lines, name, stream), daemon=True)
            for name, stream in (("out", child.stdout), ("err", child.stderr))
        ]
        for reader in readers:
            reader.start()
        assert child.stdin
        child.stdin.write(stdin.encode())
        child.stdin.close()
        code: int | None = None
        while code is None and time.monotonic() - began < limit:
            code = child.poll()
            if code is None and stop(child.pid):
                break
            time.sleep(0.05)
        if code is None:
            time.sleep(5)
            code = child.poll()
        if code is None:
            child.kill()
        child.wait()
        _sweep(env["TMPDIR"])
        for reader in readers:
            reader.join(5)
        return EndedRun(lines, code, time.monotonic() - began)


def _keep(lines: list[tuple[str, str]], name: str, stream: Any) -> None:
    for raw in stream:
        lines.append((name, raw.decode(errors="replace").rstrip("\n")))


def _sweep(tmp: str) -> None:
    """Ends the processes that the program left behind: those with this recording's TMPDIR."""
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                if f"TMPDIR={tmp}\0".encode() in (proc / "environ").read_bytes():
                    subprocess.run(["kill", "-9", proc.name], check=False)
            except OSError:
                continue


def session_in(lines: list[tuple[str, str]]) -> str:
    """The session id, wherever the program prints it."""
    for _, text in lines:
        found = re.search(r'"(?:session_id|thread_id|sessionID|sessionId)":\s*"([^"]+)"', text)
        if found:
            return found[1]
    return ""


def scrub(text: str, home: Path, url: str) -> str:
    """Replaces the paths of this machine with neutral ones."""
    checkout = str(Path(__file__).parents[3])
    pairs = [
        (str(home / "project"), "/work/project"),
        (str(home), "/work/agent"),
        (url, "http://127.0.0.1:8000"),
        (url.split(":")[-1], "8000"),
        (str(clis.folder()), "/opt/agents"),
        (sys.prefix, "/opt/venv"),
        (checkout, "/opt/hypervisor"),
    ]
    for old, new in pairs:
        text = text.replace(old, new).replace(old.replace("/", "-"), new.replace("/", "-"))
    return text


def version(name: str) -> str:
    done = subprocess.run(
        [*clis.program(name), "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    return next((line for line in done.stdout.splitlines() if re.search(r"\d\.\d", line)), "?")


def record(name: str, label: str, case: Case) -> str:
    with tempfile.TemporaryDirectory(prefix="recording-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        project = home / "project"
        project.mkdir()
        (project / "a.py").write_text("print('a')\n")
        with ModelServer(down=case.down) as server:
            server.script("item-[0-9]+", case.moves or [QUOTA[name]])
            asking = clis.Asking(
                server.url, home, "Look at item-1 (a.py), then complete the task.", **case.asking
            )
            if case.resume:
                asking = _first(name, asking, server, project)
            made = clis.line(name, asking)
            ran = run(made.argv, made.env, made.stdin, project, _stopper(case, server), case.limit)
            usage = home / "usage.json"
            head = {
                "cli": name,
                "version": version(name),
                "case": label,
                "argv": made.argv,
                "exit": ran.code,
                "seconds": round(ran.seconds, 1),
                "requests": len(server.asked),
                "dealt": server.dealt()._asdict(),
                "usage_file": json.loads(usage.read_text()) if usage.exists() else None,
            }
            text = "\n".join(
                [
                    json.dumps(head),
                    *(json.dumps({"from": name, "line": line}) for name, line in ran.lines),
                ]
            )
            target = STREAMS / name / f"{label}.jsonl"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(scrub(text, home, server.url) + "\n")
            errors = sum(1 for where, _ in ran.lines if where == "err")
            asked = f"requests {len(server.asked)} aside {len(server.aside)}"
            lines = f"lines {len(ran.lines)} ({errors} err)"
            return f"{name:9} {label:22} exit {ran.code} {ran.seconds:5.1f}s {lines} {asked}"


def _first(name: str, asking: clis.Asking, server: ModelServer, project: Path) -> clis.Asking:
    """Runs the session that is then resumed, until its first command has run."""
    made = clis.line(name, asking)
    ran = run(made.argv, made.env, made.stdin, project, lambda pid: False, 60)
    return asking._replace(session=session_in(ran.lines), prompt="Go on with item-1.")


def _stopper(case: Case, server: ModelServer) -> Any:
    """Sends the signal once, when the program has its first move (or waits for the last one)."""
    sent: list[float] = []

    def stop(pid: int) -> bool:
        if not case.stop:
            return False
        last = server.asked[-1] if server.asked else None
        due = last and (last.move.hang or not last.turn.calls) and time.time() - last.at > 2
        if due and not sent:
            subprocess.run(["kill", f"-{case.stop}", str(pid)], check=False)
            sent.append(time.monotonic())
        return bool(sent) and time.monotonic() - sent[0] > 8

    return stop


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cli", nargs="*", default=list(clis.NAMES))
    parser.add_argument("--case", action="append", choices=list(CASES))
    given = parser.parse_args()
    for name in given.cli:
        for label in given.case or CASES:
            if name in ONLY.get(label, (name,)):
                print(record(name, label, CASES[label]), flush=True)


if __name__ == "__main__":
    main()
