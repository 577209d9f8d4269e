"""./hv from a fresh checkout: it sets itself up once, or says clearly why it cannot."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
UNAVAILABLE = 69


@pytest.fixture
def checkout(tmp_path):
    """What ./hv needs of the repository, in a folder with a space in its name."""
    root = tmp_path / "my checkout"
    root.mkdir()
    for name in ("hv", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, root)
    shutil.copytree(REPO / "scripts", root / "scripts")
    shutil.copytree(REPO / "docs" / "man", root / "docs" / "man")
    shutil.copytree(REPO / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def environment(**more):
    """An empty environment except for PATH and how to reach the package index."""
    index = ("home", "pip_", "http_proxy", "https_proxy", "no_proxy", "ssl_cert_")
    kept = {name: value for name, value in os.environ.items() if name.lower().startswith(index)}
    return {**kept, "PATH": os.defpath, "HV_PYTHON": sys.executable, **more}


def hv(path, *args, env=None, cwd="/"):
    env = env or environment()
    return subprocess.run(
        [path, *args], env=env, cwd=cwd, capture_output=True, text=True, timeout=300
    )


def python_that(tmp_path, name, case):
    """A Python that behaves like the real one except for one `case` line of shell."""
    path = tmp_path / name
    path.write_text(f'#!/bin/sh\ncase $* in {case} ;; esac\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("did not happen within 10 s")


def test_without_python_it_says_what_to_install(checkout, tmp_path):
    result = hv(checkout / "hv", "ls", env={"PATH": str(tmp_path / "nothing here")})

    assert result.returncode == UNAVAILABLE
    assert "Python 3.11 or newer is needed" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (checkout / ".venv").exists()


def test_too_old_a_python_is_refused_by_name(checkout, tmp_path):
    old = python_that(tmp_path, "python3.6", "*version_info*) exit 1")

    result = hv(checkout / "hv", env=environment(HV_PYTHON=old))

    assert result.returncode == UNAVAILABLE
    assert result.stderr == f"hv: HV_PYTHON={old} is not a working Python 3.11 or newer.\n"


def test_a_python_without_the_venv_module_is_named_with_its_remedy(checkout, tmp_path):
    bare = python_that(tmp_path, "bare-python", "*ensurepip*) exit 1")

    result = hv(checkout / "hv", env=environment(HV_PYTHON=bare))

    assert result.returncode == UNAVAILABLE
    assert "apt install python3-venv" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_failed_install_leaves_no_half_made_environment(checkout):
    (checkout / "pyproject.toml").write_text("this is not TOML\n")

    result = hv(checkout / "hv", "ls")

    assert result.returncode == UNAVAILABLE
    assert result.stdout == ""
    assert "The unfinished .venv was removed." in result.stderr
    assert "TOML" in result.stderr and "TOML" in (checkout / ".venv.log").read_text()
    assert not (checkout / ".venv").exists()


def test_a_start_waits_only_so_long_for_another_one(checkout, tmp_path):
    hangs = environment(HV_PYTHON=python_that(tmp_path, "hangs", "*venv\\ .venv) exec sleep 60"))
    with subprocess.Popen([checkout / "hv"], env=hangs, start_new_session=True) as first:
        try:
            wait_until((checkout / ".venv" / "unfinished").exists)
            second = hv(checkout / "hv", env=environment(HV_SETUP_WAIT="1"))
        finally:
            os.killpg(first.pid, signal.SIGKILL)

    assert second.returncode == UNAVAILABLE
    assert "waiting for it" in second.stderr
    assert "for too long" in second.stderr


def test_set_up_after_a_killed_start_then_through_a_symlink_from_anywhere(checkout, tmp_path):
    """One real install (it needs the package index), so it checks all that needs one."""
    hangs = environment(HV_PYTHON=python_that(tmp_path, "hangs", "*venv\\ .venv) exec sleep 60"))
    with subprocess.Popen([checkout / "hv"], env=hangs, start_new_session=True) as killed:
        wait_until((checkout / ".venv" / "unfinished").exists)
        os.killpg(killed.pid, signal.SIGKILL)
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "hv link"
    link.symlink_to("../my checkout/hv")
    (tmp_path / "elsewhere" / "hypervisor").mkdir(parents=True)  # must not shadow the real one
    elsewhere = environment(PYTHONPATH=str(tmp_path / "elsewhere"))

    starts = [
        subprocess.Popen(
            [link, "--version"],
            env=elsewhere,
            cwd=tmp_path / "elsewhere",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    results = [(*start.communicate(timeout=300), start.returncode) for start in starts]
    again = hv("./hv", "--version", env=elsewhere, cwd=checkout)
    refused = hv(link, "--no-such-option", env=elsewhere, cwd=tmp_path)

    for stdout, stderr, code in results:
        assert (stdout.split()[0], code) == ("hv", 0), stderr
    assert "".join(stderr for _, stderr, _ in results).count("First start") == 1
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == results[0][0]
    assert refused.returncode not in (0, UNAVAILABLE)
    assert not (checkout / ".venv.log").exists()


def test_a_copied_checkout_does_not_run_the_original(checkout):
    """Its .venv still points at the first folder, so it has to be created again (here: refused)."""
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "checkout").symlink_to(REPO)
    shutil.copy2(checkout / "pyproject.toml", venv / "ready-base.toml")

    result = hv(checkout / "hv", env=environment(HV_PYTHON="/no/python"))

    assert result.returncode == UNAVAILABLE
    assert result.stdout == ""


def test_extras_are_installed_with_the_locked_versions(checkout):
    """The stand-in for .venv/bin/python only records how it is called."""
    shutil.copy(REPO / "requirements-dev.lock", checkout)
    python, calls = checkout / ".venv" / "bin" / "python", checkout / "calls"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{calls}"\n')
    python.chmod(0o755)

    def set_up(*extras):
        calls.write_text("")
        done = hv("/bin/sh", checkout / "scripts" / "venv.sh", *extras)
        assert done.returncode == 0, done.stderr
        return calls.read_text()

    assert "--editable .[dev] --constraint requirements-dev.lock" in set_up("dev")
    assert set_up("dev") == set_up() == ""
    with (checkout / "requirements-dev.lock").open("a") as lock:
        lock.write("another==1.0\n")
    assert set_up() == ""
    assert "--constraint requirements-dev.lock" in set_up("dev")
