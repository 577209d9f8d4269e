"""scripts/release.sh: it refuses what is not ready, builds, and tags only when asked to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hypervisor
from tests.install.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.install
TAG = f"v{hypervisor.__version__}"


class Checkout:
    """A repository with the files of this one, all of them committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(names, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, os.fsdecode(listed).split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        (folder / ".venv").mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.name", "A")
        self.git("config", "user.email", "a@example.org")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "Release")
        subprocess.run(["sh", "scripts/tested.sh", "--note"], cwd=self.folder, check=True)

    def name_the_version(self) -> None:
        path = self.folder / "CHANGELOG.md"
        path.write_text(path.read_text().replace("## Unreleased", f"## {hypervisor.__version__}"))

    def release(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "scripts/release.sh", *words],
            cwd=self.folder,
            env={**os.environ, "HV_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path / "my checkout")
    made.commit()
    return made


def test_a_dry_run_reports_everything_that_is_missing(checkout):
    (checkout.folder / "README.md").write_text("changed")
    done = checkout.release("--dry-run")
    assert done.returncode == 1
    assert "uncommitted changes" in done.stderr
    assert "the tests have not passed on these files" in done.stderr
    assert f"no entries under '## {hypervisor.__version__}'" in done.stderr
    assert "3 to fix" in done.stdout
    assert checkout.git("tag") == ""


def test_a_release_stops_at_the_first_problem(checkout):
    done = checkout.release()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "CHANGELOG.md" in done.stderr
    assert not (checkout.folder / "dist").exists()


def test_what_is_ready_is_built_and_tagged_once(checkout):
    checkout.name_the_version()
    checkout.commit()
    rehearsal = checkout.release("--dry-run")
    assert rehearsal.returncode == 0, rehearsal.stderr
    assert checkout.git("tag") == ""
    done = checkout.release()
    assert done.returncode == 0, done.stderr
    assert checkout.git("tag") == f"{TAG}\n"
    assert len(list((checkout.folder / "dist").iterdir())) == 2
    again = checkout.release()
    assert again.returncode == 1 and "already exists" in again.stderr


def test_wrong_words_are_refused(checkout):
    assert checkout.release("--now").returncode == 2
