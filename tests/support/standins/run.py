"""One run of a stand-in: its session, its requests, its report."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NoReturn

from tests.support.standins.voices import VOICES

SPAN = re.MULTILINE | re.DOTALL


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
        """Save the session, as the real ones do all the time: this is what is left after a kill."""
        used = self.voice.requests + self.voice.earlier
        path = self.home / ".standin" / f"{self.voice.session}.json"
        path.write_text(json.dumps({**self.kept, "requests": used, "resumed": False}))

    def note(self, name: str, *words: object) -> None:
        line = " ".join(map(str, (int(time.time() * 1000), os.getpid(), *words))) + "\n"
        with open(self.provider / name, "ab", buffering=0) as file:
            file.write(line.encode())

    def ask(self) -> None:
        """One request to the provider. A limit ends the run as the real ones do: late."""
        if (self.provider / "down").exists():
            self.note("unreached", os.environ.get("HV_TASK", "-"))
            self.keep()
            sys.exit(self.voice.unreachable())
        limit = self.provider / "limit"
        until = float(limit.read_text() or 0) if limit.exists() else 0.0
        answer = 429 if time.time() < until else 200
        self.note("requests", os.environ.get("HV_TASK", "-"), answer)
        if answer == 429:
            self.limited(until)
        self.voice.requests += 1
        self.keep()

    def limited(self, until: float) -> NoReturn:
        """Report it, and keep trying."""
        if self.kind == "claude":
            info = {"status": "rejected", "resetsAt": int(until) + 1, "rateLimitType": "five_hour"}
            self.voice.line(
                type="rate_limit_event", rate_limit_info=info, session_id=self.voice.session
            )
        seconds = max(until - time.time(), 1)
        self.voice.retry(429, f"Too Many Requests, please try again in {seconds:.0f}s")
        time.sleep(30)  # a worker that sees a limit has ended us long ago
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
            event = {
                "type": "result",
                "subtype": "error_during_execution",
                "is_error": True,
                "num_turns": 0,
                "session_id": self.resumes,
                "errors": [text],
            }
            os.write(1, json.dumps(event).encode() + b"\n")
            os.write(2, text.encode() + b"\n")
        sys.exit(1)

    def report(self, status: str = "completed", **more: Any) -> None:
        """In the requested form: by the schema, or as a last line."""
        report = {"status": status, "summary": f"did {self.act}", **more}
        schema = re.search(r"^BEGIN DATA (\w+) \(schema\)\n(.*?)\nEND DATA \1$", self.prompt, SPAN)
        if schema and status == "completed":
            report = {"data": fitting(json.loads(schema[2])), **report}
        if self.kind == "claude" and "--json-schema" in self.argv:
            return self.voice.end("as asked", report)
        if self.kind == "codex" and "--output-schema" in self.argv:
            return self.voice.end("", report)
        if "data" in report:
            return self.voice.end(f"I looked.\n{json.dumps(report)}")
        told = " / ".join(str(more.get(name, "-")) for name in ("reason", "evidence", "next_step"))
        words = {"completed": f"COMPLETED: did {self.act}"}.get(status, f"{status.upper()}: {told}")
        return self.voice.end(f"I looked.\n{words}")


def fitting(schema: dict[str, Any]) -> Any:
    """Minimal data that matches a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: fitting(part) for name, part in schema.get("properties", {}).items()}
    return {"array": [], "string": "x", "integer": 1, "number": 1, "boolean": True}.get(
        schema.get("type", "")
    )


def _resumed(kind: str, argv: list[str]) -> str:
    if kind == "codex":
        return argv[-2] if "resume" in argv else ""
    return argv[argv.index("--resume") + 1] if "--resume" in argv else ""
