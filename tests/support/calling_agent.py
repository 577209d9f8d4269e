"""A stand-in for claude that calls its model as often as CALLS says, then reports its task done.

It uses its address and key as the real program does. A call that fails because the connection
broke is made once more; after any other error it ends like claude does.
"""

import http.client
import json
import os
import sys
import time
from urllib.parse import urlsplit

BODY = {
    "model": "scripted-1",
    "stream": True,
    "tools": [{"name": "mcp__hypervisor__complete_task", "input_schema": {}}],
}


def say(**event):
    print(json.dumps({**event, "session_id": "s-1"}), flush=True)


def call(prompt):
    address = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(address.netloc, timeout=120)
    body = json.dumps({**BODY, "messages": [{"role": "user", "content": prompt}]})
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
    try:
        connection.request("POST", f"{address.path}/v1/messages", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def talk():
    """In a terminal: each line is a call, until the end of the input."""
    print(f"resumed {sys.argv[-1]} in {os.getcwd()}", flush=True)
    for line in sys.stdin:
        status, text = call(line)
        print(f"answered {status} {text if status != 200 else ''}", flush=True)


def main():
    if "--version" in sys.argv:
        return print("1.0.0 (calling agent)")
    if "attach" in sys.argv:
        return talk()
    prompt = sys.stdin.read()
    say(type="system", subtype="init", model="scripted-1", mcp_servers=[])
    retried = 0
    for _ in range(int(os.environ["CALLS"])):
        try:
            status, text = call(prompt)
        except (OSError, http.client.HTTPException):
            retried += 1
            status, text = call(prompt)
        if status != 200:
            said = f"API Error: {status} {text}"
            say(
                type="result",
                subtype="success",
                is_error=True,
                api_error_status=status,
                result=said,
            )
            sys.exit(1)
        time.sleep(float(os.environ.get("PAUSE", "0")))
    report = {"status": "completed", "summary": f"retried {retried}"}
    say(type="result", subtype="success", is_error=False, structured_output=report, result="done")
    return None


if __name__ == "__main__":
    main()
