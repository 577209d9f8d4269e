"""A repository that only one of two hosts has: the other works on it, and the first one merges."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.support.hosts import Host, need_namespaces, wait_for

FAR = '[hosts]\nlabels = ["far"]\nlease = "4s"\n'
RUN = ("run", "--on", "far", "--workspace", "clone", "--merge", "local", "--name", "far")


def git(folder, *words):
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(params=["folder", "bundles"])
def exchange(request, tmp_path):
    place = f"{tmp_path}/exchange"
    return place if request.param == "folder" else f"file://{place}"


@pytest.fixture
def hosts(tmp_path, postgres_url, exchange):
    """The second one cannot see the folder of the first."""
    need_namespaces()
    owner = Host(tmp_path, "owner", postgres_url, f'[workspace]\nexchange = "{exchange}"\n')
    others = [Host(tmp_path, name, postgres_url, FAR) for name in ("other", "third")]
    owner.start()
    others[0].start(hidden=owner.home)
    yield owner, *others
    for host in (owner, *others):
        host.kill()


def project_on(owner):
    folder = owner.home / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name in ("a", "b", "log"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=start")
    return folder


def test_work_of_another_host_comes_back_and_is_merged(hosts):
    owner, other, _ = hosts
    project = project_on(owner)
    # Both change log.txt, so the second one works again, from what the first one changed.
    script = 'item={}; hostname >> "$item"; echo "$item" >> log.txt; git commit -qam "change $item"'
    ended = owner.inside(*RUN, "--shell", "--", script, cwd=project, stdin="a.txt\nb.txt\n")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert (project / "a.txt").read_text() == "a\nother\n"
    assert (project / "b.txt").read_text() == "b\nother\n"
    assert sorted((project / "log.txt").read_text().split()) == ["a.txt", "b.txt", "log"]
    assert git(project, "status", "--porcelain") == ""
    tasks = json.loads(owner.hv("ls", "--batch", "far", "--json").stdout)
    shown = owner.inside("diff", tasks[0]["id"], cwd=project)
    assert "+other" in shown.stdout, shown.stderr
    refused = other.hv("land", "far")
    assert refused.returncode == 2 and "on host owner; land it there" in refused.stderr


@pytest.mark.parametrize("exchange", ["bundles"], indirect=True)
def test_finished_work_of_a_host_that_died_is_merged_once(hosts, tmp_path):
    owner, other, _ = hosts
    project, started, go = project_on(owner), tmp_path / "started", tmp_path / "go"
    script = f"touch {started}; until test -e {go}; do sleep 0.1; done; hostname >> {{}}"
    owner.inside(*RUN, "--detach", "--shell", "--", script, cwd=project, stdin="a.txt\n")
    wait_for(started.exists)
    os.kill(other.pid(), signal.SIGSTOP)  # so nobody there collects what the worker saves
    go.touch()
    task = wait_for(lambda: task_in(owner, "merging"))
    other.kill()
    wait_for(lambda: task_in(owner, "done"))
    assert (project / "a.txt").read_text() == "a\nother\n"
    assert git(project, "rev-list", "--count", "--no-merges", "main") == "2"
    assert task["attempts"] == 1


@pytest.mark.parametrize("exchange", ["folder"], indirect=True)
def test_another_host_takes_over_and_snapshots_of_the_dead_one_stay(hosts, tmp_path):
    owner, other, third = hosts
    project, started = project_on(owner), tmp_path / "started"
    script = f"""
        if test -e {started}; then echo ours >> {{}}; exit 0; fi
        if ! test -e {tmp_path}/first; then touch {tmp_path}/first; echo lost > lost.txt; exit 1; fi
        touch {started}; sleep 600"""
    words = ("--retries", "3", "--detach", "--shell", "--", script)
    owner.inside(*RUN, *words, cwd=project, stdin="a.txt\n")
    wait_for(started.exists)
    other.kill()
    third.start(hidden=owner.home)
    task = wait_for(lambda: task_in(owner, "done"))
    assert (project / "a.txt").read_text() == "a\nours\n"
    assert git(project, "rev-list", "--count", "--no-merges", "main") == "2"
    first = owner.inside("diff", task["id"], "--attempt", "1", cwd=project)
    assert "+lost" in first.stdout, first.stderr


def task_in(host, state):
    tasks = json.loads(host.hv("ls", "--batch", "far", "--json").stdout)
    return next((task for task in tasks if task["state"] == state), None)
