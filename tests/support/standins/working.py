"""Acts in which an agent works: it reports, prints, edits and calls MCP tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.support.standins.acting import FOR_EVER, act, burn, wait_until, write_all
from tests.support.standins.client import Mcp, mcp_access
from tests.support.standins.run import Run


@act
def ok(run: Run) -> None:
    """Success after this many requests."""
    run.voice.begin()
    for _ in range(int(run.argument or 1)):
        run.ask()
        run.voice.tool()
    run.report(receipts=["looked at it"])


@act
def slow(run: Run) -> None:
    """This many requests, with a pause after each."""
    run.voice.begin()
    for _ in range(int(run.argument or 5) - run.voice.earlier):
        run.ask()
        run.voice.tool()
        time.sleep(0.3)
    run.report()


@act
def together(run: Run) -> None:
    """A request, then wait until this many agents have made theirs."""
    run.voice.begin()
    if not run.kept.get("resumed"):
        run.ask()
        run.note("together", os.environ.get("HV_TASK", "-"))
        wait_until(lambda: (run.provider / "go").exists())
    run.ask()
    run.voice.tool()
    run.report()


@act
def waits(run: Run) -> None:
    """Its model hangs. The program uses some CPU while it waits, as the real ones do."""
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
    """A tool runs for this many seconds, without output."""
    run.voice.begin()
    run.ask()
    code = f"import time\nuntil = time.monotonic() + {run.argument}\n"
    code += "while time.monotonic() < until: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    run.voice.tool()
    run.report()


@act
def tells(run: Run) -> None:
    """It prints its environment, its arguments and its folders."""
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
        write_all(1, b"y" * 100_000)
    write_all(1, b"\n")
    run.report()


@act
def misfits(run: Run) -> None:
    """Its data does not match the schema; resumed, it does if the prompt asks for a correction
    ("twice": never).
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
        write_all(1, b"z" * 1_000 + b"\n")


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
    """It ends its claim itself, then reports something else."""
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
    """It blocks its task over MCP, waits, and continues working as if nothing had happened."""
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


@act
def overlaps(run: Run) -> None:
    """It adds a line to a file once this many agents do; resumed, it keeps both sides of a
    conflict, and a record of its prompt and the file."""
    run.voice.begin()
    run.ask()
    path, task = Path("shared.txt"), os.environ["HV_TASK"]
    if run.kept.get("resumed"):
        record = {"prompt": run.prompt, "file": path.read_text()}
        (run.provider / f"returned-{task}").write_text(json.dumps(record))
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(x for x in lines if x[:7] not in ("<<<<<<<", "=======", ">>>>>>>")))
    else:
        run.note("overlaps", task)
        at_it = run.provider / "overlaps"
        wait_until(lambda: len(at_it.read_text().splitlines()) >= int(run.argument))
        path.write_text(f"{path.read_text()}by {task}\n")
    run.voice.tool()
    run.report()


@act
def careless(run: Run) -> None:
    """As above, but resumed, it leaves the conflict as it is; a new session adds its line."""
    if run.kept.get("resumed"):
        run.voice.begin()
        run.ask()
        run.report()
    else:
        overlaps(run)


@act
def lands(run: Run) -> None:
    """It changes files as its item says: item-NUMBER-own, -bad or -sharedNAME. A shared file is
    changed by two at the same time; sent back, it keeps both sides of a conflict."""
    item = run.kept.setdefault("item", "".join(re.findall(r"item-\d+-\w+", run.prompt)[:1]))
    number, kind = item.split("-")[1:]
    run.voice.begin()
    run.ask()
    if kind.startswith("shared"):
        if not run.kept.get("resumed"):
            run.note(kind, number)
            at_it = run.provider / kind
            wait_until(lambda: len({x.split()[2] for x in at_it.read_text().splitlines()}) >= 2)
        _add_line(Path(f"{kind}.txt"), f"by {number}")
    Path(f"{'bad' if kind == 'bad' else 'new'}-{number}.txt").write_text(f"by {number}\n")
    if int(number) % 2:
        subprocess.run(["git", "add", "--all"], check=True)
        words = ["git", "commit", "--quiet", "--message", f"Work of {number}"]
        subprocess.run(words, stdout=subprocess.DEVNULL)  # sent back, it may have nothing new
    run.voice.tool()
    run.report()


def _add_line(path: Path, line: str) -> None:
    """Once, and both sides of a conflict stay."""
    lines = path.read_text().splitlines()
    kept = [x for x in lines if x[:7] not in ("<<<<<<<", "=======", ">>>>>>>") and x != line]
    path.write_text("".join(f"{x}\n" for x in [*kept, line]))


@act
def asks(run: Run) -> None:
    """It asks which port to use: in its report, on the last line of its message ("line") or over
    MCP ("mcp"). With a person's answer in its prompt it finishes, and writes down the port."""
    run.voice.begin()
    run.ask()
    run.voice.tool()
    record = {"prompt": run.prompt, "session": run.voice.session, "resumes": run.resumes}
    run.note("prompts", json.dumps(record))
    if found := re.search(r"port (\d+)\nEND DATA", run.prompt):
        Path(f"port-{run.argument}").write_text(found[1])
        return run.report(summary=f"uses port {found[1]}")
    if run.argument == "mcp":
        with Mcp(mcp_access(run)) as server:
            server.call("block_task", {"reason": "no port", "question": "Which port"})
        return run.voice.end("I asked.\nBLOCKED")
    if run.argument == "line":
        return run.voice.end("BLOCKED: no port / config is empty / Which port should it use?")
    question = "Which port should it use?"
    return run.report("blocked", reason="no port", next_step=question, question="")


@act
def listens(run: Run) -> None:
    """It waits for the file `go`, then calls tools ("mcp") or only ends. What it hears of a note
    goes into the file `heard`."""
    run.voice.begin()
    run.ask()
    run.voice.tool()
    run.note("waiting", os.environ.get("HV_TASK", "-"))
    wait_until(lambda: (run.provider / "go").exists())
    heard = [run.prompt]
    if run.argument == "mcp":
        with Mcp(mcp_access(run)) as server:
            heard += [json.dumps(server.call("append_receipt", {"text": "looked"}))]
            heard += [json.dumps(server.call("complete_task", {})) for _ in range(2)]
    if run.argument == "late":
        with Mcp(mcp_access(run)) as server:
            heard += [json.dumps(server.call("complete_task", {})) for _ in range(2)]
    with open(run.provider / "heard", "a") as file:
        file.writelines(json.dumps(text) + "\n" for text in heard)
    run.report()
