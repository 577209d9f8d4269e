"""The streams of claude, codex and gemini, as the real programs write them."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

COST = 0.10  # of one request, in the stream of claude
TOKENS = (1000, 20)


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

    def unreachable(self) -> int:
        """The provider cannot be reached."""
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
            message={
                "id": f"msg_{self.requests}",
                "role": "assistant",
                "content": list(content),
                "usage": usage,
            },
        )

    def tool(self, name: str = "Bash", answer: str = "fine") -> None:
        self.tools += 1
        use = f"toolu_{self.tools}"
        self._message({"type": "tool_use", "id": use, "name": name, "input": {"command": "x"}})
        result = {"type": "tool_result", "tool_use_id": use, "content": answer, "is_error": False}
        self.event("user", message={"role": "user", "content": [result]})

    def deny(self, name: str = "Bash") -> None:
        self.denied.append(name)
        self.event("system", subtype="permission_denied", tool_name=name, tool_use_id="toolu_x")
        result = {
            "type": "tool_result",
            "tool_use_id": "toolu_x",
            "is_error": True,
            "content": f"Permission to use {name} has been denied",
        }
        self.event("user", message={"role": "user", "content": [result]})

    def say(self, text: str) -> None:
        self._message({"type": "text", "text": text})

    def retry(self, status: int, words: str) -> None:
        error = {429: "rate_limit", 401: "authentication_failed"}.get(status, "server_error")
        self.event(
            "system",
            subtype="api_retry",
            attempt=1,
            max_retries=10,
            retry_delay_ms=60_000,
            error_status=status,
            error=error,
        )

    def fail(self, status: int, words: str) -> int:
        self._result(f"API Error: {status} {words}", is_error=True, api_error_status=status)
        return 1

    def broken(self) -> int:
        self._result("API Error: Connection error.", is_error=True, terminal_reason="api_error")
        return 1

    def unreachable(self) -> int:
        self.event(
            "system",
            subtype="api_retry",
            attempt=1,
            max_retries=3,
            retry_delay_ms=610,
            error_status=None,
            error="unknown",
        )
        time.sleep(0.2)
        self._result("API Error: Connection refused (ECONNREFUSED)", is_error=True)
        return 1

    def end(self, text: str = "", report: Any = None) -> None:
        more = {} if report is None else {"structured_output": report}
        self._result(text, **more)

    def _result(self, text: str, **more: Any) -> None:
        given = TOKENS[0] * self.requests, TOKENS[1] * self.requests
        cost = round(COST * self.requests, 6)
        usage = {
            "input_tokens": given[0],
            "output_tokens": given[1],
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        of_model = {
            "inputTokens": given[0],
            "outputTokens": given[1],
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "costUSD": cost,
        }
        event = {
            "subtype": "success",
            "is_error": False,
            "num_turns": self.requests,
            "result": text,
            "usage": usage,
            "total_cost_usd": round(COST * (self.requests + self.earlier), 6),
            "modelUsage": {"fake": of_model},
            "api_error_status": None,
            "model_usage_since_last_result": {"fake": of_model},
            "permission_denials": [{"tool_name": name} for name in self.denied],
            "terminal_reason": "completed",
            **more,
        }
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
        item = {
            "id": f"item_{self.tools}",
            "type": "command_execution",
            "command": "x",
            "aggregated_output": answer,
            "exit_code": 0,
            "status": "completed",
        }
        self.line(type="item.started", item={**item, "status": "in_progress", "exit_code": None})
        self.line(type="item.completed", item=item)

    def deny(self, name: str = "Bash") -> None:
        """It does not report this."""

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

    def unreachable(self) -> int:
        """It waits for the network forever."""
        while True:
            told = "waiting for network (Connection failed: error sending request)"
            self.line(type="error", message=f"Reconnecting... {told}")
            time.sleep(1)

    def end(self, text: str = "", report: Any = None) -> None:
        if text or report is not None:
            self.say(text or json.dumps(report))
        used = self.requests + self.earlier
        usage = {
            "input_tokens": TOKENS[0] * used,
            "cached_input_tokens": 0,
            "output_tokens": TOKENS[1] * used,
        }
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

    def unreachable(self) -> int:
        words = "exception TypeError: fetch failed sending request"
        self.err(f"Attempt 1 failed. Retrying with backoff... Error: {words}")
        time.sleep(0.2)
        self.result("error", error={"type": "unknown", "message": f"[API Error: {words}]"})
        return 1

    def end(self, text: str = "", report: Any = None) -> None:
        if text or report is not None:
            self.say(text or json.dumps(report))
        self.result("success")

    def result(self, status: str, **more: Any) -> None:
        stats = {
            "input_tokens": TOKENS[0] * self.requests,
            "cached": 0,
            "output_tokens": TOKENS[1] * self.requests,
            "tool_calls": self.tools,
        }
        self.line(type="result", status=status, stats=stats, **more)


VOICES: dict[str, type[Voice]] = {"claude": Claude, "codex": Codex, "gemini": Gemini}
