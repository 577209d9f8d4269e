"""The built-in skills with real agents: what they read and report, and what is left unchanged."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hypervisor
from hypervisor.selftest.repositories import Repo
from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, Turn, call, result, shell
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
FLAWED = Path(__file__).parents[3] / "examples" / "flawed"
SEARCHES = {
    "injection and input handling": ("high", "flawed/accounts.py", 11),
    "secrets and unsafe defaults": ("critical", "flawed/accounts.py", 7),
    "error handling and resource leaks": ("medium", "flawed/invoices.py", 18),
}
SAME = "flawed/serve.py:15 critical pickle.loads of what anybody sends runs their code"


@pytest.fixture
def shop(project: AgentProject) -> AgentProject:
    shutil.copytree(FLAWED, project.folder / "flawed")
    return project


def read_move(agent: str, path: str) -> Move:
    """The program's own way to read a file."""
    return shell(f"cat {path}") if agent == "codex" else call("Read", {"file_path": path})


def search_moves(agent: str, project: AgentProject, item: str) -> list[Move]:
    severity, file, line = SEARCHES[item]
    text = (project.folder / file).read_text().splitlines()[line - 1].strip()
    finding = {
        "file": file,
        "line": line,
        "severity": severity,
        "title": f"wrong in {item}",
        "evidence": text,
        "cause": "a request",
        "fix": "another line",
    }
    report = {
        "status": "completed",
        "summary": f"searched for {item}",
        "category": severity,
        "rationale": "read all five files",
        "receipts": [f"{file}:{line} {text}"],
        "data": {"findings": [finding]},
    }
    return [
        read_move(agent, str(project.folder / file)),
        call("remember", {"text": f"{file}:{line} {severity} {text}", "topic": item.split()[0]}),
        call("remember", {"text": SAME, "topic": "injection"}),
        result(report),
    ]


def report_moves(agent: str, turn: Turn) -> Move:
    """Reads the file that the prompt names, and reports its contents."""
    named = re.search(r"in the file `([^`]+)`", turn.text)
    assert named is not None
    if not turn.calls:
        return read_move(agent, named[1])
    found = [item for item in SEARCHES if item in turn.last]
    return result(
        {
            "status": "completed",
            "summary": f"{len(found)} searches",
            "category": "critical",
            "rationale": "3 came in",
            "data": {"report": "\n".join(found)},
        }
    )


def tasks_of(project: AgentProject, kind: str) -> dict[str, Any]:
    return {task.title: task for task in project.tasks() if task.type == kind}


@pytest.mark.parametrize("agent", ("claude", "codex"))
def test_three_search_one_reports_and_all_of_it_is_in_the_hive(
    shop: AgentProject, agent: str
) -> None:
    shop.model.script(
        "Combine their findings into one report", lambda turn: report_moves(agent, turn)
    )
    for item in SEARCHES:
        shop.model.script(f"weakness: `{item}`", search_moves(agent, shop, item))
    before = {path: path.read_bytes() for path in (shop.folder / "flawed").iterdir()}
    ended = shop.run("code-audit", "flawed", "--agent", agent, "--quiet", seconds=600)
    assert ended.code == 0, ended.err + ended.out + shop.story()
    shop.wait_until_left()

    searches = tasks_of(shop, "code-audit")
    assert {name: task.result["category"] for name, task in searches.items()} == {
        item: severity for item, (severity, _, _) in SEARCHES.items()
    }
    (report,) = tasks_of(shop, "reduce").values()
    assert report.result["data"]["report"].split("\n") == list(SEARCHES)
    assert report.branch == "code-audit"
    with closing(hypervisor.open(shop.store)) as hv:
        known = hv.hive_report("code-audit")
        assert (known.agents, known.findings, known.distinct, known.shared) == (3, 6, 4, 1)
        receipts = [line.text for task in searches.values() for line in hv.show(task.id).receipts]
    assert sum("quoted" not in line and "flawed/" in line for line in receipts) >= 3
    asked = next(
        each for each in shop.model.asked if each.key == "Combine their findings into one report"
    )
    assert "pickle.loads of what anybody sends" in asked.turn.text  # the findings are in the prompt
    assert {path: path.read_bytes() for path in (shop.folder / "flawed").iterdir()} == before


@pytest.mark.parametrize("agent", ("claude", "codex"))
def test_each_file_is_reviewed_once_and_its_category_is_reported(
    shop: AgentProject, agent: str
) -> None:
    reviews = {"accounts": "broken", "invoices": "broken", "serve": "risky", "tidy": "fine"}
    for name, category in reviews.items():
        path = f"flawed/{name}.py"
        shop.model.script(
            f"Review the file `{path}`",
            [
                read_move(agent, str(shop.folder / path)),
                result(
                    {
                        "status": "completed",
                        "summary": f"reviewed {name}",
                        "category": category,
                        "rationale": f"{name} it is",
                        "data": {"remarks": []},
                    }
                ),
            ],
        )
    ended = shop.run("review-files", "flawed", "--agent", agent, "--quiet", seconds=600)
    assert ended.code in (0, 10), ended.err + ended.out + shop.story()
    found = {
        Path(title).stem: task.result["category"]
        for title, task in tasks_of(shop, "review").items()
    }
    assert found == reviews
    (summary,) = shop.folder.glob(".hypervisor/batches/*/chunk-01-summary.json")
    counted = {"broken": 2, "risky": 1, "fine": 1}
    wait_for(lambda: json.loads(summary.read_text())["categories"] == counted, "the summary")


def test_a_refactoring_is_merged_and_the_project_stays_as_it_was(shop: AgentProject) -> None:
    repo = Repo(shop.folder)
    repo.commit({".gitignore": "*\n!flawed/\n!flawed/*.py\n"})
    path = shop.folder / "flawed" / "tidy.py"
    before = path.read_bytes()

    def moves(turn: Turn) -> Move:
        found = turn.calls and re.search(r"\S*flawed/tidy\.py", turn.calls[0].answer or "")
        file = found[0] if found else ""
        steps = [
            call("Glob", {"pattern": "**/tidy.py"}),
            call("Read", {"file_path": file}),
            call(
                "Edit",
                {
                    "file_path": file,
                    "old_string": "One space between words",
                    "new_string": "A single space between words",
                },
            ),
            result(
                {
                    "status": "completed",
                    "summary": "shorter",
                    "category": "simpler",
                    "rationale": "a word",
                    "data": {"steps": [], "noticed": []},
                }
            ),
        ]
        return steps[min(len(turn.calls), len(steps) - 1)]

    shop.model.script("Make the module `flawed/tidy.py` simpler", moves)
    ended = shop.run(
        "refactor-module", "flawed/tidy.py", "--agent", "claude", "--quiet", seconds=600
    )
    assert ended.code == 10, ended.err + ended.out + shop.story()  # a checkpoint waits
    assert path.read_bytes() == before
    (task,) = tasks_of(shop, "refactor").values()
    assert (task.state, task.result["category"]) == ("done", "simpler")
    (branch,) = repo.git.text("for-each-ref", "--format=%(refname)", "refs/heads/hv").split()
    assert "A single space" in (repo.read(branch, "flawed/tidy.py") or "")
    patch = shop.ended(shop.start("diff", task.id))
    assert '+    """A single space between words, none around them."""' in patch.out, shop.story()
