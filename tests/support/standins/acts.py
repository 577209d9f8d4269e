"""What stand-ins act out, the bad things too. Each returns its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.standins.client import Mcp, mcp_access
from tests.support.standins.run import Run
from tests.support.standins.voices import Gemini

FOR_EVER = 3600.0
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
def waits(run: Run) -> None:
    """Its model hangs. The program burns some CPU meanwhile, as the real ones do."""
    run.voice.begin()
    run.ask()
    with Mcp(mcp_access(run)):
        run.voice.tool()
        until = time.monotonic() + FOR_EVER
        while time.monotonic() < until:
            burn(0.02)
            time.sleep(0.2)


@act
def works(run: Run) -> None:
    """A tool is at work for so many seconds, without a word."""
    run.voice.begin()
    run.ask()
    code = f"import time\nuntil = time.monotonic() + {run.argument}\n"
    code += "while time.monotonic() < until: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    run.voice.tool()
    run.report()


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
        time.sleep(2)


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
    access = mcp_access(run)
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
def hoards(run: Run) -> int | None:
    """It writes its key into its home, then ends as told. Resumed, it looks for it there."""
    run.voice.begin()
    run.ask()
    key = os.environ["STANDIN_KEY"]
    for folder in (run.home / ".cache", Path(os.environ["TMPDIR"])):
        path = folder / "snapshot.sh"
        if run.kept.get("resumed"):
            run.note("seen", path.name, path.exists() and key in path.read_text())
        else:
            folder.mkdir(exist_ok=True)
            path.write_text(f"export KEY={key}\n")
    run.voice.tool()
    if run.argument == "waits" and not run.kept.get("resumed"):
        run.note("waiting", os.environ.get("HV_TASK", "-"), run.voice.session)
        time.sleep(FOR_EVER)
    if run.argument == "crash":
        return 3
    run.report("blocked" if run.argument == "blocked" else "completed", reason="no key")
    return None


@act
def tells(run: Run) -> None:
    """What it was given: its environment, its words, its folders."""
    run.voice.begin()
    run.ask()
    told = {
        "env": dict(os.environ),
        "argv": run.argv,
        "cwd": os.getcwd(),
        "prompt": run.prompt,
        "home": sorted(str(p.relative_to(run.home)) for p in run.home.rglob("*")),
    }
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
def misfits(run: Run) -> None:
    """Its data does not fit; resumed, it does so only if it is told to correct it ("twice": never).
    With "mcp" in its argument it completes the task over MCP."""
    run.voice.begin()
    run.ask()
    run.voice.tool()
    good, bad = {"count": 3}, {"count": "three"}
    if run.argument.startswith("mcp"):
        tries = (bad, bad) if run.argument == "mcptwice" else (bad, good)
        with Mcp(mcp_access(run)) as server:
            for data in tries:
                answer = server.call("complete_task", {"result": {"data": data}})
                run.note("answers", json.dumps(answer).replace(" ", "_"))
        run.voice.end("I looked.\nCOMPLETED")
        return
    corrects = run.argument != "twice" and "data.count: 'three' is not" in run.prompt
    report = {"status": "completed", "summary": "counted", "data": good if corrects else bad}
    run.voice.end(json.dumps(report))


@act
def novel(run: Run) -> None:
    """An answer of 5 MB, whose last line is the report."""
    run.voice.begin()
    run.ask()
    run.voice.tool()
    run.voice.end("It was a dark and stormy night.\n" * 160_000 + "COMPLETED: read it")


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
    access = mcp_access(run)
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
    with Mcp(mcp_access(run)) as server:
        server.call("complete_task", {"summary": "over MCP"})
    run.voice.tool("mcp__hypervisor__complete_task")
    run.voice.end("I looked.\nCOMPLETED")


@act
def goeson(run: Run) -> None:
    """It blocks its task over MCP, burns some time, and works on as if nothing had happened."""
    run.voice.begin()
    run.ask()
    with Mcp(mcp_access(run)) as server:
        server.call("block_task", {"reason": "no key"})
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    for number in range(6_000):
        run.voice.tool("Write")
        run.note("wrote", number)
        time.sleep(0.1)


@act
def pull(run: Run) -> int | None:
    """It claims and completes task after task."""
    run.voice.begin()
    with Mcp(mcp_access(run)) as server:
        while True:
            run.ask()
            answer = server.call("claim_next_task", {"caller": "standin"})
            token = re.search(r"\b[0-9a-z]{12}\.\d+\.[0-9a-z]{16}\b", json.dumps(answer))
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


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
