"""Work goes to the hosts that have what it needs, and waits if none has."""

from __future__ import annotations

import json

import pytest

from tests.support.hosts import Host, need_namespaces, wait_for


@pytest.fixture
def hosts(tmp_path, postgres_url):
    need_namespaces()
    started = [
        Host(tmp_path, "a", postgres_url),
        Host(tmp_path, "b", postgres_url, '[hosts]\nlabels = ["gpu"]\n'),
        Host(tmp_path, "client", postgres_url),
    ]
    for host in started[:2]:
        host.start()
    yield started
    for host in started:
        host.kill()


def ran_on(client, batch):
    """The hosts that worked on a batch, by what each task printed."""
    tasks = json.loads(client.hv("ls", "--batch", batch, "--json").stdout)
    return [client.hv("logs", task["id"]).stdout.split()[0] for task in tasks]


def test_labels_choose_hosts_and_a_missing_label_is_named(hosts, tmp_path):
    _, _, client = hosts
    run = ("run", "--cwd", str(tmp_path), "--name")
    script = "hostname; sleep 0.3"
    words = ("--on", "gpu", "--shell", "--", script)
    ended = client.hv(*run, "labeled", *words, stdin="1\n2\n3\n")
    assert ended.returncode == 0, ended.stderr
    assert ran_on(client, "labeled") == ["b", "b", "b"]
    client.hv(*run, "nowhere", "--on", "lab", "--detach", "--", "true", stdin="1\n2\n")
    status = wait_for(lambda: _waiting(client, "nowhere"))
    assert "2 tasks need the label lab, which no live host has" in status


def _waiting(client, batch):
    text = client.hv("status", batch).stdout
    return text if "waiting:" in text else ""
