"""hv install and hv uninstall in an empty home: what is written, kept, refused and restored."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

from hypervisor.integrations.clients import CLIENTS
from hypervisor.integrations.install import skill
from tests.cli.conftest import Cli, assert_one_clear_line

CONFIGS = {
    "claude": (".claude.json", ".mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
    "opencode": (".config/opencode/opencode.json", "opencode.json"),
    "qwen": (".qwen/settings.json", ".qwen/settings.json"),
    "copilot": (".copilot/mcp-config.json", ".mcp.json"),
}
OTHER = '{\n   "theme": "dark",\n   "mcpServers": {\n      "other": {"command": "x"}\n   }\n}\n'


class ClaimRegistry(Cli):
    """A home and a project, both empty."""

    def __init__(self, folder):
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        super().__init__(self.project)
        self.env["HOME"] = str(self.home)

    def files(self):
        """Everything below the two, except the backups."""
        return {
            str(path.relative_to(self.home.parent)): path.read_bytes()
            for path in self.home.parent.rglob("*")
            if path.is_file() and "state" not in path.parts
        }

    def config(self, client, scope="user"):
        name = CONFIGS[client][scope == "project"]
        return (self.project if scope == "project" else self.home) / name

    def given(self, client, data):
        path = self.config(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def left_alone(self, *args):
        before = self.files()
        result = self(*args)
        assert result.code == 2, result
        assert_one_clear_line(result.err)
        assert self.files() == before
        return result.err


@pytest.fixture
def desk(tmp_path):
    return ClaimRegistry(tmp_path)


def read(path):
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


def entry(path):
    found = read(path)
    inner = found.get("mcpServers") or found.get("mcp_servers") or found["mcp"]
    return inner["hypervisor"]


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", CLIENTS)
class TestEveryClient:
    def test_is_written_and_gone_again(self, desk, client, scope):
        desk.ok("install", client, f"--{scope}", "--yes")
        written = entry(desk.config(client, scope))
        words = written["command"]
        words = words if isinstance(words, list) else [words, *written["args"]]
        assert words[-1] == "mcp"
        assert os.path.isabs(words[0])
        skills = [name for name in desk.files() if name.endswith("hypervisor/SKILL.md")]
        assert len(skills) == 1
        assert len(desk.files()) == 2
        assert "nothing to change" in desk.ok("install", client, f"--{scope}", "--yes")
        desk.ok("uninstall", client, f"--{scope}", "--yes")
        assert desk.files() == {}
        assert not list(desk.home.rglob("record.json"))

    def test_claude_does_not_hide_the_tools_behind_a_search(self, desk, client, scope):
        desk.ok("install", client, f"--{scope}", "--yes")
        written = entry(desk.config(client, scope))
        reads_it = client == "claude" or (client, scope) == ("copilot", "project")
        assert written.get("alwaysLoad", False) is reads_it

    def test_a_dry_run_changes_nothing(self, desk, client, scope):
        shown = desk.ok("install", client, f"--{scope}", "--dry-run")
        assert "hypervisor" in shown and "dry run" in shown
        assert desk.files() == {}
        assert not list(desk.home.iterdir())


class TestOwnersFile:
    @pytest.mark.parametrize("client", ["claude", "gemini", "qwen", "copilot"])
    @pytest.mark.parametrize(
        "text", [OTHER, "{}", "{}\n", OTHER.replace("\n", "\r\n"), '{"a": 1}', " {\n} "]
    )
    def test_is_restored_byte_for_byte(self, desk, client, text):
        path = desk.given(client, text)
        desk.ok("install", client, "--yes")
        assert entry(path)["args"] == ["mcp"]
        desk.ok("uninstall", client, "--yes")
        assert path.read_bytes() == text.encode()

    def test_what_else_changed_in_the_meantime_stays(self, desk):
        path = desk.given("claude", OTHER)
        desk.ok("install", "claude", "--yes")
        changed = path.read_text().replace('"dark"', '"light"')
        path.write_text(changed)
        desk.ok("uninstall", "claude", "--yes")
        assert path.read_text() == OTHER.replace('"dark"', '"light"')

    def test_a_client_that_rewrites_its_file(self, desk):
        """As Claude Code does at every start."""
        desk.ok("install", "claude", "--yes")
        path = desk.config("claude")
        path.write_text(json.dumps({**read(path), "userID": "x"}, indent=2))
        desk.ok("uninstall", "claude", "--yes")
        assert read(path) == {"userID": "x"}

    def test_an_entry_that_the_owner_changed_stays(self, desk):
        desk.ok("install", "claude", "--yes")
        path = desk.config("claude")
        path.write_text(path.read_text().replace('"mcp"', '"mcp", "--tools", "worker"'))
        before = path.read_bytes()
        result = desk("uninstall", "claude", "--yes")
        assert result.code == 9
        assert "was changed since it was written" in result.out
        assert path.read_bytes() == before

    def test_an_entry_of_before_comes_back(self, desk):
        text = OTHER.replace("other", "hypervisor")
        path = desk.given("claude", text)
        desk.ok("install", "claude", "--yes")
        path.write_text(path.read_text().replace("dark", "light"))
        desk.ok("uninstall", "claude", "--yes")
        assert read(path) == json.loads(text.replace("dark", "light"))

    def test_twice_installed_still_knows_the_first_version(self, desk, tmp_path):
        path = desk.given("claude", OTHER)
        desk.ok("install", "claude", "--yes")
        hv = tmp_path / "bin" / "hv"
        hv.parent.mkdir()
        hv.write_text("#!/bin/sh\n")
        hv.chmod(0o755)
        desk.ok("install", "claude", "--yes", PATH=f"{hv.parent}:{os.defpath}")
        assert entry(path)["command"] == str(hv)
        desk.ok("uninstall", "claude", "--yes", PATH=f"{hv.parent}:{os.defpath}")
        assert path.read_text() == OTHER

    def test_comments_in_toml_stay(self, desk):
        text = '# mine\nmodel = "o3"  # good\n\n[mcp_servers.other]\ncommand = "x"'
        path = desk.given("codex", text)
        desk.ok("install", "codex", "--yes")
        assert path.read_text().startswith(text)
        desk.ok("uninstall", "codex", "--yes")
        assert path.read_text() == text

    def test_mode_stays_and_what_was_kept_is_private(self, desk):
        path = desk.given("claude", OTHER)
        path.chmod(0o640)
        desk.ok("install", "claude", "--yes")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        kept = [each for each in desk.home.rglob("state/**/*") if each.is_file()]
        assert any(each.read_text() == OTHER for each in kept)
        assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in kept)

    def test_the_difference_shows_no_neighbours(self, desk):
        text = json.dumps({"mcpServers": {"x": {"env": {"KEY": "s3cr3t"}}}}, indent=2)
        desk.given("gemini", text)
        assert "s3cr3t" not in desk.ok("install", "gemini", "--yes")

    def test_a_skill_of_the_owners_comes_back(self, desk):
        skill = desk.home / ".claude/skills/hypervisor/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("mine\n")
        desk.ok("install", "claude", "--yes")
        desk.ok("uninstall", "claude", "--yes")
        assert skill.read_text() == "mine\n"

    def test_claude_and_copilot_share_a_project(self, desk):
        desk.ok("install", "claude", "--project", "--yes")
        desk.ok("install", "copilot", "--project", "--yes")
        assert entry(desk.config("claude", "project"))["alwaysLoad"] is True
        desk.ok("uninstall", "claude", "--project", "--yes")
        desk.ok("uninstall", "copilot", "--project", "--yes")
        assert desk.files() == {}


class TestOddFiles:
    @pytest.mark.parametrize(
        "data",
        [
            b"\xef\xbb\xbf{}",
            b"{\n  // mine\n}",
            b'{"a": 1,}',
            b"{",
            b"[]",
            b"\xff\xfe{\0}\0",
            b'{"mcpServers": []}',
            b'{"a": 1, "a": 2}',
            b"{} {}",
        ],
    )
    @pytest.mark.parametrize("client", ["claude", "opencode"])
    def test_are_left_untouched(self, desk, client, data):
        if client == "opencode":
            data = data.replace(b"mcpServers", b"mcp")
        desk.given(client, data)
        said = desk.left_alone("install", client, "--yes")
        assert "was not changed" in said
        assert "Add this yourself: {" in said

    def test_commented_opencode_file(self, desk):
        path = desk.config("opencode").with_suffix(".jsonc")
        path.parent.mkdir(parents=True)
        path.write_text('{\n  // mine\n  "theme": "x"\n}\n')
        assert "it has comments" in desk.left_alone("install", "opencode", "--yes")
        path.write_text('{\n  "theme": "x"\n}\n')
        desk.ok("install", "opencode", "--yes")
        assert "hypervisor" in path.read_text()

    @pytest.mark.parametrize("data", [b"a = ", b"mcp_servers = 1", b"\xef\xbb\xbfa = 1"])
    def test_odd_toml(self, desk, data):
        desk.given("codex", data)
        said = desk.left_alone("install", "codex", "--yes")
        assert "Add this yourself: mcp_servers.hypervisor = {" in said

    def test_a_link_is_not_followed(self, desk):
        real = desk.home / "dotfiles.json"
        real.write_text("{}")
        desk.config("claude").symlink_to(real)
        assert "is a link to" in desk.left_alone("install", "claude", "--yes")
        assert desk.config("claude").is_symlink()

    def test_a_dangling_link_is_not_followed(self, desk):
        desk.config("claude").symlink_to(desk.home / "nowhere")
        assert "is a link to" in desk.left_alone("install", "claude", "--yes")

    @pytest.mark.parametrize("verb", ["install", "uninstall"])
    @pytest.mark.parametrize("client", CLIENTS)
    def test_a_linked_folder_does_not_lead_out_of_the_project(self, desk, client, verb):
        """A project comes from others: its links may point at files of its user."""
        desk.ok("install", client, "--project", "--yes")
        outside = desk.home / "outside"
        outside.mkdir()
        known = CLIENTS[client]
        top = desk.project / (known.project_skills or known.skills).split("/")[0]
        top.rename(outside / top.name)
        if verb == "install":
            shutil.rmtree(outside / top.name)
            (outside / top.name).mkdir()
        top.symlink_to(outside / top.name)
        said = desk.left_alone(verb, client, "--project", "--yes")
        assert "outside the project" in said

    def test_a_linked_folder_that_is_missing_is_not_made(self, desk):
        (desk.project / ".gemini").symlink_to(desk.home / "new")
        desk.left_alone("install", "gemini", "--project", "--yes")
        assert not (desk.home / "new").exists()

    def test_a_linked_folder_inside_the_project_is_used(self, desk):
        (desk.project / "shared").mkdir()
        (desk.project / ".gemini").symlink_to("shared")
        desk.ok("install", "gemini", "--project", "--yes")
        assert entry(desk.project / "shared/settings.json")["args"] == ["mcp"]
        desk.ok("uninstall", "gemini", "--project", "--yes")
        assert desk.files() == {}

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
    def test_a_file_of_another_user(self, desk):
        os.chown(desk.given("claude", "{}"), 12345, 12345)
        assert "another user" in desk.left_alone("install", "claude", "--yes")

    def test_a_protected_file(self, desk):
        desk.given("claude", "{}").chmod(0o400)
        assert "write-protected" in desk.left_alone("install", "claude", "--yes")

    def test_a_folder_in_its_place(self, desk):
        desk.config("claude").mkdir()
        assert "not a regular file" in desk.left_alone("install", "claude", "--yes")

    def test_a_fifo_in_its_place(self, desk):
        os.mkfifo(desk.config("claude"))
        assert "not a regular file" in desk.left_alone("install", "claude", "--yes")

    def test_what_was_kept_is_lost(self, desk):
        """Then only the entry is removed."""
        path = desk.given("gemini", OTHER)
        for spoil in (Path.unlink, lambda file: file.write_text('{"x": 1}')):
            desk.ok("install", "gemini", "--yes")
            for kept in (desk.home / ".local/state").rglob("*"):
                if kept.is_file():
                    spoil(kept)
            desk.ok("uninstall", "gemini", "--yes")
            assert json.loads(path.read_text()) == json.loads(OTHER)

    def test_a_home_that_cannot_be_written_down(self, desk, tmp_path):
        hv = tmp_path / os.fsdecode(b"bin\xff") / "hv"
        hv.parent.mkdir()
        hv.write_text("#!/bin/sh\n")
        hv.chmod(0o755)
        path = f"{hv.parent}:{os.defpath}"
        result = desk("install", "codex", "--yes", PATH=path)
        assert result.code == 2 and "not valid UTF-8" in result.err


class TestManners:
    @pytest.mark.parametrize("home", ["", "somewhere"])
    def test_a_home_that_is_none(self, desk, home):
        """The user's home from the system is used; never the root or this folder."""
        own = pwd.getpwuid(os.getuid()).pw_dir
        said = json.loads(desk.ok("install", "gemini", "--dry-run", "--json", HOME=home))
        assert said["files"][0] == f"{own}/.gemini/settings.json"

    def test_nobody_to_ask(self, desk):
        assert "use --yes to approve" in desk.left_alone("install", "claude")

    def test_unknown_client(self, desk):
        desk.left_alone("install", "netscape", "--yes")

    def test_nothing_to_remove(self, desk):
        assert "nothing to remove" in desk.ok("uninstall", "claude", "--yes")

    def test_json(self, desk):
        answer = json.loads(desk.ok("install", "claude", "--yes", "--json"))
        assert answer["changed"] is True
        assert len(answer["files"]) == 2

    def test_by_name_where_it_is_shared(self, desk, tmp_path):
        hv = tmp_path / "bin" / "hv"
        hv.parent.mkdir()
        hv.write_text("#!/bin/sh\n")
        hv.chmod(0o755)
        desk.ok("install", "claude", "--project", "--yes", PATH=f"{hv.parent}:{os.defpath}")
        assert entry(desk.config("claude", "project"))["command"] == "hv"

    @pytest.mark.parametrize(
        ("client", "variable", "name"),
        [
            ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
            ("codex", "CODEX_HOME", "config.toml"),
            ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ],
    )
    def test_a_home_of_its_own(self, desk, tmp_path, client, variable, name):
        desk.ok("install", client, "--yes", **{variable: str(tmp_path / "own")})
        assert (tmp_path / "own" / name).exists()

    def test_asked_at_a_terminal(self, desk, project):
        project.env["HOME"] = str(desk.home)
        terminal = project.terminal("install", "claude")
        terminal.wait_for("Change these files? [y/N]")
        terminal.press("n\n")
        assert terminal.wait() == 0
        assert not desk.config("claude").exists()
        terminal = project.terminal("install", "claude")
        terminal.wait_for("[y/N]")
        terminal.press("y\n")
        assert terminal.wait() == 0
        assert desk.config("claude").exists()


def test_the_skill_names_tools_that_there_are():
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", skill().decode()))
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    assert named
    assert {name for name in named if f"### {name}\n" not in page} == set()
