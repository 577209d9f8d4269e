"""What one host printed is read on another: results, later stages, and after its death."""

from __future__ import annotations

import json

import pytest

from tests.support.hosts import Host, need_namespaces, wait_for

ON_B = ("--requires", "b")


@pytest.fixture
def hosts(tmp_path, postgres_url):
    need_namespaces()
    shared = f'\n[outputs]\nstore = "file://{tmp_path}/objects"\n'
    started = [
        Host(tmp_path, "b", postgres_url, '[run]\ncapabilities = ["b"]\n' + shared),
        Host(tmp_path, "client", postgres_url),  # no output store is configured here
    ]
    started[0].start()
    yield started
    for host in started:
        host.kill()


def run(client, *words, stdin):
    """Submit on a host that lacks what the tasks require, and wait."""
    ended = client.hv("run", *words, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended


def tasks_of(client, batch):
    return json.loads(client.hv("ls", "--batch", batch, "--json").stdout)


def test_outputs_cross_hosts(hosts):
    b, client = hosts
    assert_a_long_output_is_read(client)
    assert_a_reduce_elsewhere_reads_it(client)
    assert_a_dead_host_leaves_its_last_words(b, client)


def assert_a_long_output_is_read(client):
    script = "for i in $(seq 20000); do echo $1 line $i; done"
    words = ("--name", "far", *ON_B, "--print", "--", "sh", "-c", script, "sh")
    ended = run(client, *words, stdin="x\ny\n")
    assert ended.stdout.count("line 20000") == 2
    log = client.hv("logs", tasks_of(client, "far")[0]["id"]).stdout.splitlines()
    assert len(log) == 20_000
    assert log[0].endswith("line 1")


def assert_a_reduce_elsewhere_reads_it(client):
    words = ("--name", "stages", *ON_B, "--print", "--reduce", "cat {}", "--", "seq")
    assert "9999" in run(client, *words, stdin="10000\n").stdout


def assert_a_dead_host_leaves_its_last_words(b, client):
    script = "echo $1 was here; sleep 60"
    words = ("--name", "dying", *ON_B, "--detach", "--", "sh", "-c", script, "sh")
    client.hv("run", *words, stdin="x\n")
    name = tasks_of(client, "dying")[0]["id"]
    wait_for(lambda: "x was here" in client.hv("logs", name).stdout)
    b.kill()
    assert "x was here" in client.hv("logs", name).stdout
