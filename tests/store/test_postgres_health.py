"""What `hv doctor` says about a PostgreSQL server."""

from __future__ import annotations

from typing import Any

import pytest

from hypervisor.store import postgres_health
from hypervisor.store.postgres_connection import SCHEMA


class Answers:
    """A session that answers with these rows, by a word of the statement."""

    def __init__(self, **rows):
        usual = {
            "pg_settings": [
                ("server_version_num", "160004"),
                ("fsync", "on"),
                ("full_page_writes", "on"),
                ("autovacuum", "on"),
                ("max_connections", "100"),
            ],
            "client backend": [(7,)],
            "datfrozenxid": [(1_000,)],
            "n_dead_tup": [],
            "idle in": [(0,)],
        }
        self._rows = {**usual, **rows}

    def rows(self, sql, values=()):
        return next(rows for word, rows in self._rows.items() if word in sql)


def checks(**rows):
    session: Any = Answers(**{name.replace("__", " "): value for name, value in rows.items()})
    return {each.name: each for each in postgres_health.findings(session, SCHEMA)}


def setting(name, value):
    usual = dict(Answers()._rows["pg_settings"])
    return {"pg_settings": list({**usual, name: value}.items())}


def test_a_healthy_server_has_nothing_to_fix():
    assert [name for name, each in checks().items() if not each.ok] == []
    assert checks()["version"].found == "PostgreSQL 16"


@pytest.mark.parametrize(
    ("name", "rows", "found"),
    [
        ("version", setting("server_version_num", "130002"), "PostgreSQL 13"),
        ("settings", setting("fsync", "off"), "fsync off"),
        ("connections", {"client__backend": [(95,)]}, "95 of 100"),
        ("upkeep", setting("autovacuum", "off"), "autovacuum is off"),
        ("upkeep", {"datfrozenxid": [(1_500_000_000,)]}, "1,500,000,000"),
        ("upkeep", {"n_dead_tup": [("tasks", 5, 20_000)]}, "tasks: 20,000 dead rows beside 5"),
        ("sessions", {"idle__in": [(1,)]}, "1 session idle in a transaction for over 5 minutes"),
    ],
)
def test_each_problem_is_named_with_a_fix(name, rows, found):
    check = checks(**rows)[name]
    assert not check.ok and found in check.found and check.fix


def test_a_real_server_is_asked(shared_postgres):
    database = shared_postgres.database()
    named = {each.name: each for each in database.facts()["server"]}
    database.close()
    assert named["version"].ok and named["connections"].ok and named["sessions"].ok
    assert not named["settings"].ok, "the tests run without fsync"
