"""The documentation says what the program does: all of it, nothing stale, and its examples run."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hypervisor
from hypervisor.app import CANNOT_RUN
from hypervisor.cli.commands_table import ALSO, COMMANDS
from hypervisor.cli.main import INTERRUPTED, make_parser
from hypervisor.core import errors
from hypervisor.queue import lifecycle
from hypervisor.runs.config import Settings, settings_from
from hypervisor.verbs import VERBS, summary

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hypervisor"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PRINTED = re.compile(r"# → (.*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:py|sh))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def without_code(page):
    """A page's prose: links and headings in code are not meant."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page):
    """The names that a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def name(page):
    return str(page.relative_to(ROOT))


def test_every_verb_has_a_command_a_method_a_page_and_a_summary():
    commands = {command.verb for command in COMMANDS.values()}
    commands |= {verb for verbs in ALSO.values() for verb in verbs}
    python = text("docs/python.md")
    for verb in VERBS:
        assert verb in commands, f"no command offers {verb}"
        assert callable(getattr(hypervisor.Hypervisor, verb, None)), f"no method {verb}"
        assert f"**`{verb}(" in python, f"docs/python.md does not explain {verb}"
        assert summary(verb).endswith("."), f"the docstring of {verb} is not a sentence"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
class TestCommand:
    def test_is_in_the_reference(self, command):
        assert f"\n### hv {command.name}\n" in text("docs/cli.md")

    def test_has_an_example_in_its_help(self, command):
        _, example = make_parser(command)[0].format_help().split("\nexample:\n")
        assert f"hv {command.name}" in example


def test_a_command_offers_only_what_exists():
    assert set(ALSO) <= set(COMMANDS)
    offered = {also for verbs in ALSO.values() for also in verbs}
    assert offered | {c.verb for c in COMMANDS.values() if c.verb} == set(VERBS)


def error_codes():
    found, more = set(), [errors.HypervisorError]
    while more:
        kind = more.pop()
        found.add(kind.code)
        more += kind.__subclasses__()
    return found


DOCUMENTED_ERRORS = sorted(
    {
        name
        for page in ("docs/errors.md", "docs/python.md")
        for name in re.findall(r"(?:[├└]── |`)([A-Z]\w+)", text(page))
        if name.startswith("Store") or hasattr(errors, name)
    }
)


def test_every_error_is_documented():
    every = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HypervisorError)
    } - {"HypervisorError"}
    assert every <= set(DOCUMENTED_ERRORS)


@pytest.mark.parametrize("name", DOCUMENTED_ERRORS)
def test_documented_error_can_be_imported(name):
    assert getattr(hypervisor, name) is getattr(errors, name)
    assert name in hypervisor.__all__


def test_every_error_code_has_an_exit_code():
    assert error_codes() == set(errors.EXIT_CODES)


@pytest.mark.parametrize("code", errors.EXIT_CODES)
def test_error_is_explained_with_its_exit_code(code):
    page = text("docs/errors.md")
    assert f"\n### `{code}`\n" in page
    section = page.split(f"\n### `{code}`\n")[1].split("\n#")[0]
    assert f"Exit code {errors.EXIT_CODES[code]}." in section


def test_exit_codes_are_documented_and_no_others():
    named = {
        value
        for key, value in vars(errors).items()
        if re.fullmatch("EXIT_[A-Z_]+", key) and isinstance(value, int)
    }
    section = text("docs/cli.md").split("\n## Exit codes\n")[1].split("\n## ")[0]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert documented == named | {*errors.EXIT_CODES.values(), INTERRUPTED, CANNOT_RUN}


def environment_variables():
    """Names that the program reads from the environment."""
    sources = [*ROOT.glob("src/**/*.py"), ROOT / "hv", ROOT / "scripts/venv.sh"]
    return {
        variable
        for source in sources
        for variable in re.findall(
            r"\b(HV_[A-Z_]+|HYPERVISOR_[A-Z_]+|NO_COLOR)\b", source.read_text(encoding="utf-8")
        )
    }


def test_environment_variables_are_documented_and_no_others():
    section = text("docs/cli.md").split("\n## Environment\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == environment_variables()


@pytest.mark.parametrize("word", [*lifecycle.STATES, *lifecycle.EVENTS])
def test_lifecycle_explains(word):
    assert f"| `{word}` |" in text("docs/lifecycle.md")


@pytest.mark.parametrize("script", ["lifecycle_diagram.py", "cli_reference.py"])
def test_generated_part_is_fresh(script):
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", ["docs/architecture.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_files_named_in_tables_exist(page):
    """They are named from the top, from the package, or from the folder that their row is about."""
    for line in text(page).splitlines():
        names = NAMED_FILE.findall(line) if line.startswith("|") else []
        folders = [ROOT, SOURCE, *(top / name for top in (ROOT, SOURCE) for name in names[:1])]
        for name in names:
            assert any((folder / name).exists() for folder in folders), f"{name} in: {line}"


def test_every_room_is_in_the_architecture():
    rooms = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")} - {"ports/"}
    for room in rooms | {path.name for path in SOURCE.glob("[a-z]*.py")}:
        assert f"`{room}`" in text("docs/architecture.md"), room


def test_every_page_can_be_reached_from_the_readme():
    seen, more = set(), [ROOT / "README.md"]
    while more:
        page = more.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(without_code(page))]
        more += [(page.parent / link).resolve() for link in links if link and ":" not in link]
    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("page", [p for p in PAGES if PYTHON.search(p.read_text())], ids=name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    """The blocks of a page are one program; each `# →` tells what its line prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYPERVISOR_STORE", raising=False)
    (tmp_path / ".hypervisor").mkdir(mode=0o700)  # its own store, whatever lies above
    program = "\n".join(PYTHON.findall(page.read_text(encoding="utf-8")))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, str(page), "exec"), {"__name__": "__main__"})
    assert printed.getvalue().splitlines() == PRINTED.findall(program)


def test_version_is_the_same_everywhere():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["version"] == hypervisor.__version__


def test_the_defaults_in_the_how_to_are_the_defaults():
    shown = re.search(r"```toml\n(.*?)```", text("docs/how-to/limits-and-load.md"), re.DOTALL)
    assert shown is not None
    assert settings_from(tomllib.loads(shown.group(1))) == Settings()


SOURCES = sorted([*PAGES, *ROOT.glob("src/**/*.py"), *ROOT.glob("scripts/*")])


@pytest.mark.parametrize("page", SOURCES, ids=name)
def test_nobody_is_told_to_install_the_package_of_a_stranger(page):
    """On the package index, the name `hypervisor` belongs to somebody else."""
    assert not re.search(r"pip install\s+['\"]?hypervisor\b", page.read_text(encoding="utf-8"))
