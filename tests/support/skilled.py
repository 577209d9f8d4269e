"""What the tests of `hv run SKILL` share: a project, its skills, and the outcome of a run."""

from __future__ import annotations

import re

import hypervisor
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import spec_from

KEY = "sk-planted-in-the-environment-4711"


def prepared(project):
    """A project with three files, and config.toml knows the stand-ins for agents."""
    project.equip(KEY)
    (project.folder / "src" / "deep").mkdir(parents=True)
    for name in ("src/a.py", "src/b.py", "src/deep/c.py"):
        (project.folder / name).write_text(f"{name}\n")
    (project.folder / "src" / "notes.txt").write_text("not Python\n")
    return project


def skill(hv, name, front, body="Look at {item}. act-ok\n", where=".hypervisor/skills", **files):
    """A skill's folder; `files` by name, with _ for the dot."""
    folder = hv.folder / where / name
    folder.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: does {name}\n{front}\n---\n"
    (folder / "SKILL.md").write_text(head + body)
    for file, text in files.items():
        (folder / file.replace("_", ".")).write_text(text)
        (folder / file.replace("_", ".")).chmod(0o755)
    return folder


def ran(hv, *args, code=0, stdin=""):
    """The tasks of the batch that `hv run` created, by title, and its output."""
    done = hv("run", "--quiet", *args, stdin=stdin)
    assert done.code == code, done
    return {task["title"]: task for task in hv.tasks(batch_of(done))}, done


def spec_of(hv, done):
    return spec_of_batch(hv, batch_of(done))


def batch_of(done):
    found = re.search(r"batch (\S+):", done.err)
    assert found is not None, done
    return found[1]


def spec_of_batch(hv, name):
    with hypervisor.open(hv.folder / ".hypervisor") as opened:
        return spec_from(opened.store.read(queries.batch, name).spec)


def output(hv, task):
    return hv.ok("logs", task["id"])
