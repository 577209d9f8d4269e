"""Runs that wait for a person, made by real workers: a chunk that proposes changes, a conflict."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.web.browser.conftest import Project, wait_for

HOSTILE = "<img src=x onerror=window.owned=1></textarea></pre><script>window.owned=1</script>"
NOTE = "---\nstatus: open\n---\nnumber {}\n"
PROPOSE = """
import json, os, sys
n, hostile = int(sys.argv[1]), {hostile!r}
why = f"item {{n}} is paid"
actions = [{{"do": "edit", "path": f"in/{{n}}.md", "set": {{"status": "done"}}, "why": why}}]
if n == 1:
    numbers = "".join(f"line {{i}}\\n" for i in range(600))
    actions += [{{"do": "write", "path": "long.txt", "text": numbers}}]
    actions += [{{"do": "write", "path": "package-lock.json", "text": "{{}}\\n"}}]
if n == 2:
    actions += [{{"do": "create", "path": "new.txt", "text": hostile + "\\nsecond line\\n"}}]
    actions += [{{"do": "delete", "path": "in/9.md"}}]
    actions += [{{"do": "move", "path": "../out", "to": "x"}}]
rationale = os.environ.get("HV_NOTE") or f"it is number {{n}}"
category = "invoice" if n % 2 else "spam"
print(json.dumps({{"category": category, "rationale": rationale, "actions": actions}}))
"""


def wait_for_chunk(project: Project) -> str:
    """The path of the page of the chunk that waits for a decision."""
    with project.open() as hv:
        [(_, chunk)] = wait_for(hv.awaiting, "a chunk waits for a decision")
        return f"/review/{chunk.batch}/{chunk.number}"


def categorize(project: Project, items: int) -> str:
    """A batch `inbox` of one chunk of two categories, which waits; returns the path of its page."""
    script = 'case $1 in *[02468]) c=spam;; *) c=invoice;; esac; echo "{\\"category\\": \\"$c\\"}"'
    return _run(project, items, items, "sh", "-c", script, "sh", "{}")


def _run(project: Project, items: int, size: int, *command: str) -> str:
    project.ungoverned()
    each = [word for n in range(1, items + 1) for word in ("--item", str(n))]
    project.hv("run", "--name", "inbox", *each, "--chunk-size", str(size), "--gate", "each",
               "--result", "json", "--detach", "--", *command)  # fmt: skip
    return wait_for_chunk(project)


def propose_changes(project: Project, items: int = 4, size: int = 3) -> str:
    """A batch `inbox` whose first chunk waits for a decision; returns the path of its page."""
    folder = project.folder
    (folder / "in").mkdir()
    for n in range(1, 10):
        (folder / "in" / f"{n}.md").write_text(NOTE.format(n))
    (folder / "long.txt").write_text("one line\n")
    (folder / "package-lock.json").write_text('{"name": "x"}\n')
    (folder / "propose.py").write_text(PROPOSE.format(hostile=HOSTILE))
    return _run(project, items, size, "python3", "propose.py", "{}")


def make_conflict(project: Project) -> str:
    """A task in review: each of its attempts insists on a commit that has been overtaken."""
    repository = project.folder / "repository"
    repository.mkdir()
    project.ungoverned()
    base = commit(repository, "start\n")
    commit(repository, "by the user\n")
    script = f"git reset --quiet --hard {base}; echo by an agent >> shared.txt"
    there = type(project)(repository)
    there.env = project.env  # the same store
    there.hv("run", "--name", "edits", "--item", "a", "--workspace", "clone", "--merge", "local",
             "--verify", "true", "--detach", "--", "sh", "-c", script)  # fmt: skip
    with project.open() as hv:
        (task,) = wait_for(lambda: hv.list_tasks(("review",)), "it conflicts")
        return str(task.id)


def commit(repository: Path, text: str) -> str:
    (repository / "shared.txt").write_text(text)
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> str:
        run = ["git", "-C", str(repository), *identity, *words]
        return subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout

    if not (repository / ".git").exists():
        git("init", "--quiet", "--initial-branch", "main")
    git("add", ".")
    git("commit", "--quiet", "--message", text.strip())
    return git("rev-parse", "HEAD").strip()
