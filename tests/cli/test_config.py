"""hv config: the settings in effect, their origin, and a file to start with."""

import os
import re
import stat
import tomllib

import pytest

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.config import agent_settings_from
from hypervisor.runs.config import Settings, settings_from


@pytest.fixture
def file(bare):
    return bare.folder / ".hypervisor" / "config.toml"


def settings(cli, *words):
    return {each["key"]: each for each in cli.json("config", *words)["settings"]}


class TestShow:
    def test_before_there_is_a_store_it_shows_the_defaults(self, bare, file):
        out = bare.ok("config")
        assert out.startswith(f"{file} (does not exist; to create it: hv config init)\n")
        assert re.search(r"^run\.workers +default +auto$", out, re.MULTILINE)
        assert re.search(r"^budget\.day +default +not set$", out, re.MULTILINE)
        assert not file.parent.exists()

    def test_the_file_comes_before_the_defaults(self, bare, file):
        bare.ok("config", "init")
        file.write_text('[run]\nworkers = 4\n[limits.types.slow]\ntime = "9h"\n')
        shown = settings(bare)
        assert shown["run.workers"] == {
            "key": "run.workers",
            "value": 4,
            "origin": "file",
            "source": str(file),
        }
        assert (shown["run.nice"]["value"], shown["run.nice"]["origin"]) == (10, "default")
        assert shown["limits.types.slow.time"]["value"] == "9h"

    def test_what_comes_from_the_environment_names_the_variable(self, bare):
        shown = settings(bare)
        assert shown["actor"]["value"] == "tester"
        assert (shown["actor"]["origin"], shown["actor"]["source"]) == ("environment", "HV_ACTOR")
        out = bare.ok("config", HV_LOG_LEVEL="debug", HYPERVISOR_STORE="elsewhere")
        assert re.search(r"^log_level +HV_LOG_LEVEL +debug$", out, re.MULTILINE)
        assert re.search(r"^store +HYPERVISOR_STORE +/.*/elsewhere/store.db$", out, re.MULTILINE)

    def test_an_option_comes_before_the_environment(self, bare):
        shown = settings(bare, "--store", "x.db")["store"]
        assert shown["value"] == str(bare.folder / "x.db")
        assert (shown["origin"], shown["source"]) == ("option", "--store")

    def test_variables_of_agents_may_be_secret(self, bare, file):
        bare.ok("config", "init")
        file.write_text('[agents.claude]\nmodel = "m"\nenv = {TOKEN = "s3cr3t"}\n')
        shown = settings(bare)
        assert shown["agents.claude.model"]["value"] == "m"
        assert shown["agents.claude.env"]["value"] == {"TOKEN": "(hidden)"}
        assert "s3cr3t" not in bare.ok("config")

    def test_hostile_text_reaches_no_terminal(self, bare, file):
        bare.ok("config", "init")
        file.write_text('[agents.claude]\nmodel = "\\u001b[31m\\u0007"\n')
        assert "\x1b" not in bare.ok("config")

    def test_an_invalid_file_is_refused_with_its_key(self, bare, file):
        bare.ok("config", "init")
        file.write_text("[run]\nworker = 4\n")
        assert "unknown key run.worker; did you mean run.workers?" in bare.refused(2, "config")
        assert bare.ok("config", "path") == f"{file}\n"

    def test_a_store_that_exists(self, hv, file):
        hv.add("a task")
        assert settings(hv)["store.durability"]["value"] == "relaxed"


class TestInit:
    def test_writes_a_private_file_that_changes_nothing(self, bare, file):
        assert bare.ok("config", "init") == f"wrote {file}\n"
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(file.parent).st_mode) == 0o700
        config = tomllib.loads(file.read_text())
        assert settings_from(config) == Settings()
        assert agent_settings_from(config) == AgentSettings()

    def test_every_line_may_be_uncommented(self, bare, file):
        bare.ok("config", "init")
        text = re.sub(r"^# (\[|\w+ = )", r"\1", file.read_text(), flags=re.MULTILINE)
        config = tomllib.loads(text)
        assert set(config) == {
            *("store", "run", "governor", "limits", "outputs", "retention", "workspace"),
            *("merge", "sandbox", "hive", "telemetry", "hosts"),
            *("agents", "routing", "prices", "budget", "gateway"),
        }
        assert settings_from(config).memory_limit == 6 << 30
        assert agent_settings_from(config).profiles["NAME"].workers == 3

    def test_does_not_overwrite(self, bare, file):
        bare.ok("config", "init")
        file.write_text("[run]\nnice = 3\n")
        assert "already exists" in bare.refused(5, "config", "init")
        assert file.read_text() == "[run]\nnice = 3\n"

    def test_unless_told_to_and_keeps_the_old_file(self, bare, file):
        bare.ok("config", "init")
        file.write_text("not TOML")
        assert bare.json("config", "init", "--force") == {"path": str(file)}
        config = tomllib.loads(file.read_text())
        assert settings_from(config) == Settings()
        assert agent_settings_from(config) == AgentSettings()
        assert file.with_name("config.toml.bak").read_text() == "not TOML"

    def test_for_a_store_elsewhere(self, bare):
        bare.ok("config", "init", "--store", "other/x.db")
        assert (bare.folder / "other" / "config.toml").exists()


def test_a_store_in_postgresql_has_its_settings_below_the_home(bare, postgres_url):
    path = bare.ok("config", "path", "--store", postgres_url).strip()
    assert path.startswith(str(bare.folder / ".local" / "share" / "hypervisor"))
    assert settings(bare, "--store", postgres_url)["store"]["origin"] == "option"
