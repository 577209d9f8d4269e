"""A stand-in for claude that attacks, and completes its task over MCP with what worked."""

import json
import os
import subprocess
import sys
from typing import Any


def say(**event):
    print(json.dumps({**event, "session_id": "s-1"}), flush=True)


class Mcp:
    """JSON lines to the configured server and back."""

    def __init__(self, path):
        with open(path) as file:
            entry = json.load(file)["mcpServers"]["hypervisor"]
        words = [entry["command"], *entry["args"]]
        pipe, env = subprocess.PIPE, entry["env"]
        self.server: Any = subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe)
        self.number = 0
        info = {"name": "attacker", "version": "1"}
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self.ask("initialize", given)
        self.tell({"method": "notifications/initialized"})

    def ask(self, method, params):
        self.number += 1
        self.tell({"id": self.number, "method": method, "params": params})
        for line in self.server.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer
        sys.exit("the MCP server has gone")

    def tell(self, message):
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.server.stdin.flush()


def main():
    if "--version" in sys.argv:
        return print("1.0.0 (attacking agent)")
    sys.stdin.read()
    say(type="system", subtype="init", model="m", mcp_servers=[])
    words = json.loads(os.environ["ATTACK"])
    attack = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = attack.stdout.decode()
    mcp = Mcp(sys.argv[sys.argv.index("--mcp-config") + 1])
    params = {"name": "complete_task", "arguments": {"summary": "tried", "result": {"saw": text}}}
    answer = mcp.ask("tools/call", params)
    mcp.server.stdin.close()
    mcp.server.wait(60)
    say(type="result", subtype="success", is_error=False, result=json.dumps(answer))
    return None


if __name__ == "__main__":
    main()
