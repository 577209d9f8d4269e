"""A store with something on every page, and hostile text in every field that takes any."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from hypervisor import Hypervisor, NewTask
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.sql import cooldowns
from hypervisor.queue.agent_session import Figures, NewSession, Tokens
from hypervisor.queue.sql import agent_sessions
from tests.web.browser.conftest import Project, wait_for

MARKUP = (
    "<img src=x onerror=window.owned=1><svg onload=window.owned=1></bdi></pre></textarea></title>"
    "<script>window.owned=1</script>\"'--><a href=javascript:window.owned=1>x</a>"
    "<p hx-get=/owned hx-trigger=load data-live=*>{{ 7 * 7 }}"
)
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x9b31m\x08\x7f"
DIRECTION = "\u202egnp.exe\u2066\u200f\u2028"
TEXT = f"{MARKUP}{TERMINAL}{DIRECTION}"
NAME = "<img/src=x/onerror=window.owned=1>'\"&{{7}}"  # where no spaces may be
LABEL = f"{NAME} -- $(touch owned) `touch owned`"
LONG = TEXT + "<b>" * 350_000  # 1 MB
LINE = 10_000_000  # characters of a line in a log

# Prints everything that hurts; the item says how it ends.
PROGRAM = f"""
import os, sys, time
text = {TEXT!r}
print(text)
sys.stdout.flush()
os.write(1, b"\\0nul \\xff\\xfe\\n")
if sys.argv[1].startswith("long"):
    os.write(1, (text * ({LINE} // len(text))).encode() + b"\\n" + text.encode() + b"\\n")
if sys.argv[1].startswith("bad"):
    sys.exit(3)
if sys.argv[1].startswith("slow"):
    time.sleep(3600)
"""


def stock(project: Project) -> dict[str, str]:
    """Fill the store; returns the ids of what the pages of single things show."""
    project.ungoverned()
    project.hv("run", "--name", LABEL, "--chunk-size", "2", "--gate", "each", "--detach",
               "--item", f"bad {MARKUP}", "--item", f"long {MARKUP}", "--item", MARKUP,
               "--", sys.executable, "-I", "-c", PROGRAM)  # fmt: skip
    project.hv("run", "--name", f"slow {NAME}", "--detach", "--item", f"slow {MARKUP}",
               "--", sys.executable, "-I", "-c", PROGRAM)  # fmt: skip
    with project.open() as hv:
        _others(hv)
        ids = {"waiting": _states(hv), **_agent(hv)}
        wait_for(lambda: hv.awaiting() and len(hv.attempts()) == 1, "the runs did not get going")
        wait_for(hv.dead_letters, "no notification was tried")
        for task in hv.list_tasks(batch=LABEL):
            for kind in ("bad", "long"):
                if task.title.startswith(kind):
                    ids[kind] = task.id
        [running] = hv.attempts()
        ids["slow"], ids["slow batch"] = running.task, running.batch
        ids["batch"] = next(batch.id for batch in hv.batches() if batch.name == LABEL)
        hv.pause(f"slow {NAME}", reason=TEXT)
        return ids


def _states(hv: Hypervisor) -> str:
    """Tasks in all states that need no run. Returns the id of one with everything."""
    after = hv.add(NewTask(TEXT[:2000], type=NAME), "tasks").id
    whole = NewTask(
        TEXT, LONG, NAME, key=TEXT, branch=NAME, assignee=NAME, exclusive=(TEXT,),
        after=(after,), data={TEXT: LONG},
    )  # fmt: skip
    id = hv.add(whole, "tasks").id
    hv.add([NewTask(f"{n} {TEXT}") for n in range(6)], "tasks")
    ends = [
        lambda token: hv.fail(token, LONG),
        lambda token: hv.block(token, LONG, unblock=TEXT),
        lambda token: hv.complete(token, {TEXT: TEXT, "category": TEXT, "rationale": LONG}),
    ]
    for end in ends:
        [lease] = hv.claim(NAME[:60], batch="tasks")
        hv.receipt(lease.token, TEXT)
        end(lease.token)
    cancelled = hv.add(NewTask(TEXT), "tasks").id
    hv.cancel(cancelled, TEXT)
    return id


def _agent(hv: Hypervisor) -> dict[str, str]:
    """A task of an agent, with what it cost and its transcript."""
    id = hv.add(NewTask("agent", TEXT), "agents").id
    [lease] = hv.claim("w", batch="agents")
    new = NewSession("claude", NAME, hv.show(id).batch.id, "w", id, 1)  # type: ignore[union-attr]
    session = hv.store.write(agent_sessions.open_session, new, hv.now())
    figures = Figures(Tokens(1, 2, 3), 4_000_000, True, 5)
    hv.store.write(agent_sessions.update, session, TEXT, figures)
    with open(hv.outputs.prepare(id, 1), "w", encoding="utf-8") as file:
        for content in (
            {"type": "text", "text": LONG},
            {"type": "thinking", "thinking": TEXT},
            {"type": "tool_use", "id": "1", "name": TEXT, "input": {"command": TEXT}},
            {"type": "tool_use", "id": "2", "name": "Edit",
             "input": {"file_path": TEXT, "old_string": TEXT, "new_string": TEXT}},
        ):  # fmt: skip
            _line(file, "assistant", content)
        _line(file, "user", {"type": "tool_result", "tool_use_id": "1", "content": TEXT})
    hv.complete(lease.token, {"summary": TEXT})
    return {"agent": id}


def _line(file: Any, role: str, content: dict[str, Any]) -> None:
    message = {"id": "m", "role": role, "content": [content], "usage": {}}
    file.write(json.dumps({"type": role, "message": message, "session_id": "s"}) + "\n")


def _others(hv: Hypervisor) -> None:
    hv.remember(TEXT, NAME, topic=NAME)
    hv.remember(f"never {TEXT}", NAME, topic=NAME)
    complain = f"echo {shlex.quote(TEXT)} >&2; false"
    hv.add_rule("rule", ["failed", "done"], ["sh", "-c", complain], tries=1)
    hv.learn_parallelization(NAME[:60], 0.5, TEXT)
    cooldown = Cooldown(NAME, hv.now() + 3_600_000, 1, TEXT, hv.now())
    hv.store.write(cooldowns.start_cooldown, cooldown, NAME, hv.now())
    hv.pause(type=NAME, reason=LONG)
