"""hv notify as people use it: rules, notices of a run, dead letters, and secrets."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import until
from tests.support.receiver import Receiver

SECRET = "s3cr3t-t0k3n"


def received(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def everywhere(folder, but=()):
    """The contents of the files below a folder, with some exceptions."""
    return b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in but
    )


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


class TestRun:
    def test_a_run_tells_about_itself(self, project):
        got = project.folder / "got"
        project.ok(
            "notify",
            "add",
            "log",
            "--on",
            "failed,done,finished",
            "--run",
            "sh",
            "-c",
            'cat >> "$0"',
            str(got),
        )
        project("run", "--name", "b", "--", "sh", "-c", "test {} != 3", stdin="1\n2\n3\n4\n")
        until(lambda: len(received(got)) == 5)
        assert sorted(each["message"] for each in received(got)) == [
            "batch b finished: 3 done, 1 failed",
            "done: 1",
            "done: 2",
            "done: 4",
            "failed: 3: exit code 1",
        ]
        assert received(got)[-1]["what"] == "finished"
        until(lambda: project.json("notify", "ls")[0]["waiting"] == 0)

    def test_hostile_titles_stay_text(self, project):
        got = project.folder / "got"
        item = "$(touch pwned);`touch pwned`'\"; touch pwned #"
        project.ok(
            "notify",
            "add",
            "log",
            "--on",
            "done",
            "--run",
            "sh",
            "-c",
            'cat >> "$0"; printf "%s" "$HV_EVENT_SAID" > said',
            str(got),
        )
        project.ok("run", "--name", "b", "--", "true", "{}", stdin=item + "\n")
        until(lambda: received(got))
        assert received(got)[0]["title"] == item
        until(lambda: (project.folder / "said").exists())
        assert not list(project.folder.rglob("pwned"))


class TestWithoutSupervisor:
    def test_send_delivers_what_is_due(self, hv, receiver):
        add_url(hv, receiver.url)
        hv.add("one")
        hv.ok("done", hv.claim())
        assert hv.ok("notify", "send") == "1 notice delivered\n"
        assert [each["message"] for each in receiver.got] == ["done: one"]
        assert hv.ok("notify", "send") == "0 notices delivered\n"

    def test_dead_letters(self, hv, receiver):
        receiver.answers = [500]
        add_url(hv, receiver.url, "--tries", "1")
        hv.add("one")
        hv.ok("done", hv.claim())
        result = hv("notify", "send")
        assert (result.code, result.out) == (9, "0 notices delivered, 1 given up\n")
        shown = hv.ok("notify", "failed")
        assert "done: one  (tried once; the receiver answered HTTP 500)" in shown
        assert hv.ok("notify", "retry") == "1 dead letter will be retried\n"
        assert hv.ok("notify", "failed") == "no dead letters\n"
        assert hv.ok("notify", "send") == "1 notice delivered\n"
        assert hv.ok("notify", "drop") == "0 dead letters dropped\n"

    def test_test_says_whether_it_arrives(self, hv, receiver):
        add_url(hv, receiver.url)
        assert hv.ok("notify", "test", "chat") == "test message delivered\n"
        receiver.answers = [403]
        assert "was not delivered: the receiver answered HTTP 403" in hv.refused(
            5, "notify", "test", "chat"
        )


def add_url(hv, url, *more):
    address = f"{url}/{SECRET}\n"
    result = hv("notify", "add", "chat", "--on", "done", "--url", *more, stdin=address)
    assert result.code == 0, result


class TestSecrets:
    def test_an_address_is_nowhere_but_in_its_file(self, project, receiver):
        receiver.answers = [500, 500]
        add_url(project, receiver.url, "--tries", "1")
        told = project.ok("notify", "ls") + project.ok("--json", "notify", "ls")
        project.ok(
            "run",
            "--name",
            "b",
            "--",
            "sh",
            "-c",
            "tr '\\0' ' ' < /proc/$PPID/cmdline",
            stdin="1\n",
        )
        until(lambda: project.json("notify", "failed"))
        told += (
            project.ok("notify", "failed") + project.ok("events") + project.ok("events", "--json")
        )
        assert SECRET not in told
        assert SECRET.encode() not in everywhere(project.folder / ".hypervisor", ("chat",))
        assert SECRET.encode() in everywhere(project.folder / ".hypervisor")
        project.ok("notify", "rm", "chat")
        assert SECRET.encode() not in everywhere(project.folder / ".hypervisor")

    def test_a_bad_address_is_not_repeated(self, hv):
        result = hv("notify", "add", "chat", "--on", "done", "--url", stdin=f"{SECRET}\n")
        assert result.code == 2
        assert SECRET not in result.err + result.out


class TestManners:
    @pytest.mark.parametrize(
        "words",
        [
            ("add",),
            ("add", "x"),
            ("add", "x", "--on", "done"),
            ("add", "x", "--run", "true"),
            ("add", "x", "--on", "never", "--run", "true"),
            ("rm",),
            ("test",),
            ("add", "x", "--on", "done", "--tries", "0", "--run", "true"),
            ("ls", "--on", "done"),
            ("add", "a/b", "--on", "done", "--run", "true"),
            ("add", "x", "--on", "done", "--url", "--run", "true"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, hv, words):
        hv.refused(2, "notify", *words)

    def test_unknown_names(self, hv):
        hv.refused(4, "notify", "rm", "nobody")
        hv.refused(4, "notify", "failed", "nobody")
        hv.refused(4, "notify", "add", "x", "--on", "done", "--batch", "nobody", "--run", "true")
