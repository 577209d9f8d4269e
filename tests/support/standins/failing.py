"""Acts in which something goes wrong: refused, out of reach, hung, crashed, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.standins.acting import FOR_EVER, act
from tests.support.standins.client import mcp_access
from tests.support.standins.run import Run
from tests.support.standins.voices import Gemini


@act
def denied(run: Run) -> None:
    """Every tool is refused, but it exits with 0."""
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
    """It prints its last message and does not exit."""
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
    """The provider always returns this status."""
    run.voice.begin()
    run.note("requests", "-", run.argument)
    words = {"400": "Bad Request", "500": "Internal Server Error", "529": "Overloaded"}
    return run.voice.fail(int(run.argument), words.get(run.argument, "Error"))


@act
def retries(run: Run) -> None:
    """The provider returns this status, and the program retries forever. While it is being
    stopped, it gets an answer after all."""

    def answered(*_: object) -> None:
        run.voice.say("I go on")
        run.note("answered", "-")
        os._exit(143)

    signal.signal(signal.SIGTERM, answered)
    run.voice.begin()
    while True:
        run.note("requests", "-", run.argument)
        run.voice.retry(int(run.argument), "Too Many Requests")
        time.sleep(2)


@act
def network(run: Run) -> int:
    """The connection keeps breaking."""
    run.voice.begin()
    return run.voice.broken()


@act
def crash(run: Run) -> int:
    run.voice.begin()
    run.ask()
    return 3


@act
def mute(run: Run) -> int:
    """No output, exit code 0."""
    return 0


@act
def polite(run: Run) -> None:
    """On SIGTERM it exits with 0 and without output."""
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
    """It prints all its secrets: whole, in pieces, in JSON and on stderr."""
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
    """It writes its key into its home, then ends as requested. Resumed, it looks for it there."""
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
