"""The environment of an attempt: the user's own, but never the store's secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.runs.processes.environment import KEPT_WHEN_CLEAN, environment_for
from tests.support.specs import changed, run_spec

SPEC = run_spec("/", ("true",))
CLEAN = changed(SPEC, clean_env=True)
URL = "postgresql://ann:secret@db.example/hv"
SECRETS = {
    "PGPASSWORD": "secret",
    "PGPASSFILE": "/home/ann/.pgpass",
    "PGSERVICEFILE": "/home/ann/.pg_service.conf",
    "PGSSLKEY": "/home/ann/key",
}
PLAIN = {"PATH": "/bin", "HOME": "/home/ann", "API_KEY": "of the user", "PGHOST": "db"}


@pytest.fixture(autouse=True)
def no_store_of_our_own(monkeypatch):
    monkeypatch.delenv("HYPERVISOR_STORE", raising=False)


def test_the_users_environment_is_inherited_with_the_batch_named():
    given_env = {**PLAIN, "HYPERVISOR_STORE": "/x/store.db"}
    assert environment_for(SPEC, given_env, "b1") == {**given_env, "HV_BATCH": "b1"}
    assert "HV_BATCH" not in given_env, "what was given is not changed"


def test_the_batch_of_an_outer_run_is_not_passed_on():
    assert environment_for(SPEC, {"HV_BATCH": "outer"}, "inner") == {"HV_BATCH": "inner"}


@pytest.mark.parametrize("workspace", ["clone", "scratch"])
def test_nothing_leads_from_a_workspace_back_to_the_checkout(workspace):
    leading_back = {
        "GIT_DIR": "/checkout/.git",
        "GIT_WORK_TREE": "/checkout",
        "GIT_INDEX_FILE": "/checkout/.git/index",
        "GIT_OBJECT_DIRECTORY": "/checkout/.git/objects",
        "GIT_COMMON_DIR": "/checkout/.git",
        "GIT_PREFIX": "src/",
        "PWD": "/checkout",
        "OLDPWD": "/checkout",
    }
    kept = {**PLAIN, "GIT_AUTHOR_NAME": "Ann", "GIT_SSH_COMMAND": "ssh -i key"}
    spec = SPEC._replace(workspace=workspace)
    assert environment_for(spec, {**kept, **leading_back}, "b1") == {**kept, "HV_BATCH": "b1"}
    here = environment_for(SPEC._replace(workspace="project"), {**kept, **leading_back}, "b1")
    assert here == {**kept, **leading_back, "HV_BATCH": "b1"}, "in the checkout, all of it is right"


@pytest.mark.parametrize("spec", [SPEC, CLEAN])
@pytest.mark.parametrize("url", [URL, "postgres://ann:secret@h/db"])
def test_the_secrets_of_a_postgres_store_are_never_passed_on(spec, url):
    env = environment_for(spec, {**PLAIN, **SECRETS, "HYPERVISOR_STORE": url}, "b1")
    assert not set(env) & {*SECRETS, "HYPERVISOR_STORE"}
    assert "secret" not in " ".join(env.values())
    assert env["PATH"] == "/bin"


@pytest.mark.parametrize("spec", [SPEC, CLEAN])
def test_nor_if_the_store_was_named_on_the_command_line(spec, monkeypatch):
    """Then the worker has the store in its own environment, not in the user's."""
    monkeypatch.setenv("HYPERVISOR_STORE", URL)
    env = environment_for(spec, {**PLAIN, **SECRETS}, "b1")
    assert not set(env) & {*SECRETS, "HYPERVISOR_STORE"}


def test_with_a_file_store_the_users_postgres_settings_are_the_users(monkeypatch):
    monkeypatch.setenv("HYPERVISOR_STORE", "/x/store.db")
    env = environment_for(SPEC, {**PLAIN, **SECRETS}, "b1")
    assert env == {**PLAIN, **SECRETS, "HV_BATCH": "b1"}


def test_a_clean_environment_keeps_only_what_it_takes_to_find_ones_way():
    language = {"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "de"}
    given_env = {**PLAIN, **SECRETS, **language, "LD_PRELOAD": "/x.so", "LCX": "no", "lc_all": "no"}
    env = environment_for(CLEAN, given_env, "b1")
    assert env == {"PATH": "/bin", "HOME": "/home/ann", **language, "HV_BATCH": "b1"}


NAMES = st.sampled_from([*KEPT_WHEN_CLEAN, *SECRETS, "HYPERVISOR_STORE", "LC_X", "AWS_SECRET"])


@given(st.dictionaries(NAMES | st.text(min_size=1), st.text() | st.just(URL)))
def test_a_clean_environment_never_holds_more(given_env):
    env = environment_for(CLEAN, given_env, "b1")
    for name, value in env.items():
        known = name in KEPT_WHEN_CLEAN or name.startswith("LC_")
        assert (known and given_env[name] == value) or (name, value) == ("HV_BATCH", "b1")
    assert {name for name in given_env if name in KEPT_WHEN_CLEAN} <= set(env)
