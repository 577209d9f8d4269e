"""Agents that do to their repository what agents do: nobody's work is lost, and each case is told.

Every agent first leaves work behind in a failed attempt, and does its harm in the next one, which
continues in the same workspace.
"""

from __future__ import annotations

from pathlib import Path

from hypervisor.git.command import Git
from hypervisor.git.hub import Hub
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from hypervisor.selftest.repositories import write_script
from tests.git.fingerprint import LANDED, fingerprint
from tests.git.support import versions
from tests.git.whole_runs import wait
from tests.support.python_runs import opened

COMMIT = "git add --all; git commit -qm work;"
HARM = {
    "nothing": "",
    "stash": "git stash -qu",
    "reset": f"{COMMIT} git reset -q --hard HEAD~1",
    "worktree": f"{COMMIT} git worktree add -q inside-$1; echo x > inside-$1/x.txt",
    "prune": f"{COMMIT} git reset -q --hard HEAD~1; git reflog expire --expire=now --all; "
    "git gc -q --prune=now",
    "push": f"{COMMIT} git push origin HEAD:main 2>&1 | grep -i 'fatal\\|error' && exit 0",
    "checkout": f"{COMMIT} git checkout -q -B main HEAD~1",
    "detach": f"git checkout -q --detach; {COMMIT}",
    "rebase": f"{COMMIT} git checkout -qb up HEAD~1; echo other > precious-$1.txt; {COMMIT} "
    "git checkout -q -; git rebase -q up",
    "delete": "rm -rf .git",
    "huge": "head -c 300000000 /dev/urandom > huge.bin; git -c core.compression=0 add --all; "
    "git -c core.compression=0 commit -qm huge",
}
# How each task ends, and what a person is told about it.
TOLD = {
    "nothing": ("done", ""),
    "stash": ("review", "not in its commits: the stash"),
    "reset": ("done", "it changed nothing"),
    "worktree": ("review", "inside-worktree/ (a repository of its own)"),
    "prune": ("done", "it changed nothing"),
    "push": ("done", ""),
    "checkout": ("done", "HEAD was at main; took the commits of hv/"),
    "detach": ("done", "took the commits of a detached HEAD"),
    "rebase": ("done", "rebase"),
    "delete": ("done", ".git is gone or not a folder"),
    "huge": ("review", "huge"),
}
MERGED = ("nothing", "push", "checkout", "detach", "rebase", "delete")
AGENT = """#!/bin/sh
if [ ! -e "precious-$1.txt" ]; then
    echo "by $1" > "precious-$1.txt"; echo "by $1" > "new-$1.txt"; echo "early $1"
    exit 3
fi
case $1 in
{cases}
esac
exit 0
"""


def test_nobodys_work_is_lost_and_each_case_is_told(tmp_path, checkout, long):
    harm = {name: text for name, text in HARM.items() if long or name != "huge"}
    cases = "\n".join(f"{name}) {text.rstrip('; ') or ':'};;" for name, text in harm.items())
    script = write_script(tmp_path / "agent", AGENT.format(cases=cases))
    before = fingerprint(checkout, *LANDED)
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        spec = RunSpec(
            str(checkout),
            CommandSpec((script, "{}")),
            workers=4,
            retry_delay=50,
            workspace="clone",
            git=GitSpec(merge="branch", continues=True),
        )
        tasks = [
            NewTask(name, type="run", key=name, retries=1, data={"item": name}) for name in harm
        ]
        hv.submit(spec, tasks, "edits")
        hv.supervise()
        ended = wait(hv, len(harm), 300)
        (path,) = Path(hv.places.data, "git").glob("*.git")
        hub = Hub(str(path)).git
        for name in harm:
            assert versions(hub, f"precious-{name}.txt") >= {f"by {name}\n"}, name
        events = hv.events(limit=10_000)
    assert fingerprint(checkout, *LANDED) == before
    landed = Git(str(checkout)).names("ls-tree", "-z", "--name-only", "hv/edits")
    for name in harm:
        task, (state, said) = ended[name], TOLD[name]
        notes = [
            e.data["message"] for e in events if e.task == task.id and "message" in (e.data or {})
        ]
        texts = [task.reason or "", *notes]
        assert task.state == state, (name, task.state, texts)
        assert any(said in text for text in texts), (name, texts)
        assert (f"new-{name}.txt" in landed) == (name in MERGED), name
