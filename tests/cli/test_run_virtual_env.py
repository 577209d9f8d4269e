"""`hv run --fn` with a virtual environment that is not the one `hv` is installed in."""

import json
import sys
import sysconfig
import venv

import pytest

from tests.support.python_runs import CONFIG

WHERE = "import sys\ndef prefix(item):\n    return [item, sys.prefix]\n"


@pytest.fixture
def environment(tmp_path):
    """A real virtual environment with a module that only it has."""
    folder = tmp_path / "its own"
    venv.create(folder, symlinks=True)
    variables = {"base": str(folder), "platbase": str(folder)}
    packages = sysconfig.get_path("purelib", "venv", variables)
    with open(f"{packages}/only_there.py", "w", encoding="utf-8") as file:
        file.write(WHERE)
    return folder


def run(hv, *words, **env):
    done = hv("run", "--fn", *words, **env)
    assert done.code == 0, done
    return done.out, [json.loads(line)["result"] for line in hv.ok("results").splitlines()]


def test_functions_run_in_the_active_environment(hv, environment):
    (hv.folder / ".hypervisor" / "config.toml").write_text(CONFIG)
    active = {"VIRTUAL_ENV": str(environment)}
    opening, results = run(hv, "only_there:prefix", "--item", "x", **active)
    assert results == [["x", str(environment)]]
    assert opening.splitlines()[0].endswith(f": 1 item, with {environment}/bin/python")

    python = str(environment / "bin" / "python")
    opening, results = run(hv, "only_there:prefix", "--item", "y", "--python", python)
    assert results[-1] == ["y", str(environment)]
    assert "with" not in opening.splitlines()[0]


@pytest.mark.parametrize("active", ["", "/nowhere", sys.prefix])
def test_without_another_environment_functions_run_in_our_own(hv, active):
    (hv.folder / ".hypervisor" / "config.toml").write_text(CONFIG)
    (hv.folder / "here.py").write_text(WHERE)
    opening, results = run(hv, "here:prefix", "--item", "x", VIRTUAL_ENV=active)
    assert results == [["x", sys.prefix]]
    assert "with" not in opening.splitlines()[0]


def test_functions_that_come_with_hypervisor_need_its_own(hv, environment):
    (hv.folder / ".hypervisor" / "config.toml").write_text(CONFIG)
    function = "hypervisor.skills.builtin.triage:run"
    (hv.folder / "task.md").write_text("---\nstatus: inbox\n---\n# A\n")
    _, results = run(hv, function, "--item", "task.md", VIRTUAL_ENV=str(environment))
    assert results[0]["category"]
