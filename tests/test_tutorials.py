"""A newcomer's first hour: every command of the tutorials prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("docs/tutorials/*.md"))
SCRIPT = ROOT / "scripts" / "tutorials.py"

PAGE = """# Add a task

```console
$ hv add 'Call the printer'
1q5k07mmmnv5
$ hv claim
1q5k07mmmnv5.1.4rm0cfqss1pe20dz  {title}
$ hv done 1q5k07mmmnv5.1.4rm0cfqss1pe20dz
$ cat > letter <<'EOF'
$ not a command
EOF
$ hv show nothing > /dev/null 2>&1
$ echo $?; wc -l < letter; echo sorry >&2
{code}
1
sorry
```
"""


def play(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=900
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_prints_what_the_page_says(page):
    check = play("--check", page)
    assert check.returncode == 0, check.stdout + check.stderr


def test_there_are_tutorials():
    assert len(PAGES) >= 4


@pytest.mark.parametrize("title, code", [("Call the plumber", 4), ("Call the printer", 0)])
def test_a_stale_output_is_shown_and_rewritten(tmp_path, title, code):
    right = PAGE.format(title="Call the printer", code=4)
    page = tmp_path / "add.md"
    page.write_text(PAGE.format(title=title, code=code))
    check = play("--check", page)
    assert check.returncode == 1
    assert "printed now" in check.stdout and "make tutorials" in check.stderr
    assert page.read_text() != right
    assert play(page).returncode == 0
    assert page.read_text() == right  # with the ids that it had
    assert play("--check", page).returncode == 0


def test_a_slow_machine_changes_no_output(tmp_path):
    page = tmp_path / "slow.md"
    page.write_text("""```console
$ echo 'waiting: nothing has been started yet'
$ echo '0 of 3 done, 1 running'; echo '✓ 3 done in 12 s'
✓ 3 done in 0.3 s (9.6/s)
```
""")
    check = play("--check", page)
    assert check.returncode == 0, check.stdout + check.stderr
