"""A store that a newer version upgrades during a run: the run ends, and nothing is done twice."""

from __future__ import annotations

from contextlib import closing

import apsw

from hypervisor.store import schema
from tests.torture.fleet import wait_for

WAIT = 'echo "$1" >> ../begun; until [ -e ../go ]; do sleep 0.05; done'
ITEMS = [str(number) for number in range(12)]


def test_a_run_ends_and_the_next_one_continues(project, tmp_path):
    begun = tmp_path / "begun"
    run = ("run", "--batch", "all", "--workers", "2", "--", "sh", "-c", WAIT, "sh")
    client = project.start(*run, items=ITEMS)
    wait_for(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two attempts")
    become(project, schema.VERSION + 1)
    (tmp_path / "go").touch()
    ended = project.ended(client)
    assert ended.code == 7, ended
    assert "was upgraded by a newer Hypervisor while it was in use" in ended.err, ended
    wait_for(lambda: not project.processes(), "the end of all", story=project.story)
    assert len(begun.read_text().split()) == 2, "it started more"
    become(project, schema.VERSION)  # from here on, this is the newer version
    assert project.ended(project.start(*run, items=ITEMS)).code == 0
    assert sorted(begun.read_text().split()) == sorted(ITEMS), "results were lost"
    assert project.states() == {"done": len(ITEMS)}


def become(project, version):
    with closing(apsw.Connection(project.store)) as connection:
        connection.set_busy_timeout(10_000)
        connection.pragma("user_version", version)
