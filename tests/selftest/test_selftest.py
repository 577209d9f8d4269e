"""`hv selftest`: it holds, it finds planted bugs, and it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hypervisor.selftest.bugs import BUGS
from hypervisor.selftest.parts import PARTS
from hypervisor.selftest.run import Scope, run_selftest
from tests.cli.conftest import Cli
from tests.cli.test_git_commands import described


@pytest.fixture
def hv(tmp_path):
    return Cli(tmp_path)


@pytest.mark.parametrize("part", [part.name for part in PARTS])
def test_a_part_holds_and_finds_its_planted_bugs(tmp_path, monkeypatch, part):
    monkeypatch.setattr("os.nice", lambda increment: 0)  # the other tests stay as they are
    report = run_selftest(str(tmp_path), Scope(1.0, 7, (part,), prove=True))
    (result,) = report.results
    assert result.outcome in ("held", "skipped"), report
    assert {each.bug for each in report.bugs} == {bug.name for bug in BUGS if bug.part == part}
    assert {each.outcome for each in report.bugs} <= {"violated"}, report
    assert report.held and report.seed == 7
    assert list(tmp_path.iterdir()) == [], "it left something behind"


def test_the_report_as_json(hv, tmp_path):
    words = ("--only", "zombies", "--minutes", "0.01", "--seed", "7", "--prove")
    report = described("selftest", hv.json("selftest", *words))
    assert report["held"] and {result["bug"] for result in report["bugs"]} == {
        "no-fence",
        "early-reclaim",
    }
    assert list(tmp_path.iterdir()) == [], "it left something behind"


def test_the_report_as_a_page(hv, tmp_path):
    words = ("--only", "zombies", "--minutes", "0.01", "--write", "report.html")
    out = hv.ok("selftest", *words)
    assert out.startswith("held      zombies") and "✓ all checks passed" in out
    page = (tmp_path / "report.html").read_text()
    assert "All checks passed" in page and "stopped workers" in page


def test_a_failing_history_is_played_again(hv, tmp_path):
    history = {"store": "sqlite", "bug": "no-sync", "seed": 1, "steps": [["add", 1, 1], ["cut"]]}
    for seed in range(1, 40):  # what is left on the disk is a matter of luck
        (tmp_path / "history.json").write_text(json.dumps({**history, "seed": seed}))
        done = hv("selftest", "--replay", "history.json")
        if done.code:
            break
    assert done.code == 9 and "VIOLATED step 1" in done.out
    (tmp_path / "history.json").write_text(json.dumps({**history, "bug": None, "seed": seed}))
    assert hv.ok("selftest", "--replay", "history.json") == "held\n"
    answer = described("selftest --replay", hv.json("selftest", "--replay", "history.json"))
    assert answer == {"held": True, "message": ""}


@pytest.mark.parametrize(
    "words, part",
    [
        (("--only", "nothing"), "choose from simulation"),
        (("--minutes", "0"), "must be between"),
        (("--write", "report.txt"), ".html or .json"),
        (("--replay", "missing.json"), "cannot read missing.json"),
    ],
)
def test_wrong_usage(hv, words, part):
    assert part in hv.refused(2, "selftest", *words)


WITHOUT_EXTRAS = """
import sys

class Extras:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("psycopg", "ray", "obstore", "acp", "apprise"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Extras())
from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.selftest.parts import PARTS

for command in COMMANDS.values():
    make_parser(command)
for part in PARTS:
    part.run
"""


def test_commands_and_parts_load_without_the_extras():
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], check=True)
