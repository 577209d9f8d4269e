"""The documentation is complete and current, and its examples run."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hypervisor
from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.config import PROFILE, agent_settings_from
from hypervisor.agents.profile import AgentProfile
from hypervisor.app import CANNOT_RUN
from hypervisor.cli.commands_table import ALSO, COMMANDS
from hypervisor.cli.config_sections import SECTIONS
from hypervisor.cli.main import INTERRUPTED, make_parser
from hypervisor.core import errors
from hypervisor.queue import lifecycle
from hypervisor.runs.config import AGENT_TABLES, TABLES, Settings, settings_from
from hypervisor.verbs import VERBS, summary
from tests.support.python_runs import end_supervisor

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
    """A page's prose, without links and headings in code."""
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
        _, example = make_parser(command)[0].format_help().split("\nexamples:\n")
        assert f"hv {command.name}" in example


def value_fields():
    """The fields of all values of the program, by name; a name may be used more than once."""
    fields: dict[str, list[set[str]]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                own = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                names = {ast.unparse(each.target) for each in own}
                fields.setdefault(node.name, []).append(names)
    return fields


def test_the_values_that_the_page_about_python_names_have_these_fields():
    fields = value_fields()
    page = " ".join(text("docs/python.md").split())
    for name, given in re.findall(r"`([A-Z][A-Za-z]+)\(([^`]+)\)`", page):
        words = {word.partition("=")[0].strip() for word in given.split(",")} - {"…"}
        words = {word for word in words if word.isidentifier()}
        assert any(words <= known for known in fields.get(name, ())), f"{name}({given})"


def subcommands(command):
    """The words that a command takes first, such as `hv receipt ls`."""
    positional = [each for each in make_parser(command)[0]._actions if not each.option_strings]
    return set(positional[0].choices or ()) if positional else set()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_the_pages_use_only_subcommands_that_exist(command):
    words = subcommands(command)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pattern = re.compile(rf"(?:`|^    (?:\$ )?|^\$ )hv {command.name} ([a-z]+)\b", re.MULTILINE)
    for page in pages if words else ():
        if page.parent.name != "decisions":
            assert set(pattern.findall(page.read_text())) <= words, page


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


@pytest.mark.parametrize(
    "script",
    [
        "lifecycle_diagram.py",
        "sandbox_table.py",
        "cli_reference.py",
        "config_reference.py",
        "man_page.py",
        "json_schema.py",
    ],
)
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


def test_every_page_is_in_the_menu_of_the_website():
    beside = ("decisions/", "how-to/clients/")
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    menu = set(re.findall(r": ([\w/-]+\.md)$", text("mkdocs.yml"), re.MULTILINE))
    assert {page for page in pages if not page.startswith(beside)} - menu == set()


@pytest.mark.parametrize("page", [p for p in PAGES if PYTHON.search(p.read_text())], ids=name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    """The blocks of a page are one program; each `# →` shows what its line prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as the folder of a script is
    monkeypatch.delenv("HYPERVISOR_STORE", raising=False)
    (tmp_path / ".hypervisor").mkdir(mode=0o700)  # its own store, whatever lies above
    program = "\n".join(PYTHON.findall(page.read_text(encoding="utf-8")))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, str(page), "exec"), {"__name__": "__main__"})
    for store in tmp_path.rglob("*.db"):
        with hypervisor.open(store) as hv:
            end_supervisor(hv)
    assert printed.getvalue().splitlines() == PRINTED.findall(program)


PROSE = [
    page
    for page in PAGES
    if page.parent.name != "decisions"
    and name(page) not in ("docs/cli.md", "docs/mcp.md", "CHANGELOG.md")
]
TRANSLATED = re.compile(r"\b(shall|anew|so many|goes on|what came of|of somebody|besides)\b", re.I)


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_page_has_no_phrase_that_sounds_translated(page):
    prose = re.sub(r"^ {4}.*$", "", without_code(page), flags=re.MULTILINE)
    assert TRANSLATED.findall(prose) == []


def test_the_version_is_in_one_place():
    pyproject = tomllib.loads(text("pyproject.toml"))
    assert "version" in pyproject["project"]["dynamic"]
    source = text(pyproject["tool"]["hatch"]["version"]["path"])
    assert f'__version__ = "{hypervisor.__version__}"' in source


def config_keys():
    """Every key that config.toml may have, with the heading of its table."""
    return [(section, name) for section in SECTIONS for name in section.keys]


@pytest.mark.parametrize("section, key", config_keys(), ids=lambda value: str(value)[:40])
def test_setting_is_in_the_reference(section, key):
    part = text("docs/config.md").split(f"\n## `{section.heading}`\n")[1].split("\n## ")[0]
    assert f"\n| `{key}` |" in part


def test_no_table_of_config_toml_is_left_out():
    tables = {section.table.split(".")[0] for section in SECTIONS}
    assert tables == {*TABLES, *AGENT_TABLES}
    documented = {(section.table, name) for section, name in config_keys()}
    for table, keys in TABLES.items():
        assert {(table, name) for name in keys if name != "types"} <= documented


def test_the_documented_defaults_are_the_defaults():
    tables = {
        section.table: "\n".join(
            f"{name} = {key.default}" for name, key in section.keys.items() if key.default
        )
        for section in SECTIONS
        if section.is_single
    }
    written = "\n".join(f"[{table}]\n{keys}" for table, keys in tables.items())
    config = tomllib.loads(written)
    assert settings_from(config) == Settings()
    assert agent_settings_from(config) == AgentSettings()


def test_the_documented_defaults_of_an_agent_are_the_defaults():
    defaults = "\n".join(f"{name} = {key.default}" for name, key in PROFILE.items() if key.default)
    settings = agent_settings_from(tomllib.loads(f'[agents.mine]\nprogram = "mine"\n{defaults}'))
    assert settings.profiles["mine"] == AgentProfile("mine", "mine")


SCRIPTS = [path for path in ROOT.glob("scripts/*") if path.is_file()]
SOURCES = sorted([*PAGES, *ROOT.glob("src/**/*.py"), *SCRIPTS])


@pytest.mark.parametrize("page", SOURCES, ids=name)
def test_no_text_names_an_unrelated_package(page):
    """On PyPI, the names `hypervisor` and `hv` belong to others."""
    install = r"(?:pip|pipx|uv tool) install\s+(?:--?[\w-]+\s+)*['\"]?(?:hypervisor(?!-queue)|hv)\b"
    assert not re.search(install, page.read_text(encoding="utf-8"))
