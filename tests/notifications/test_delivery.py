"""Notices to real receivers: a command, a webhook, and one through apprise."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from hypervisor.core.extras import install_command
from hypervisor.notifications import delivery
from hypervisor.notifications.delivery import NoticeSender
from hypervisor.notifications.notice import Notice, Rule
from hypervisor.resources.host import LocalHost
from tests.support.receiver import Receiver
from tests.torture.fleet import wait_for

HOSTILE = "$(touch pwned) `touch pwned`; touch pwned #\n' \" \\ & | > pwned \x1b[2J"
DATA = {
    "what": "failed",
    "message": HOSTILE,
    "rule": "log",
    "number": 7,
    "task": "t1",
    "batch": "b",
}
NOTICE = Notice("log", 7, "failed", "", 1, DATA)


@pytest.fixture
def courier(tmp_path):
    return NoticeSender(str(tmp_path / "data"))


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def to_command(tmp_path, *words):
    return Rule("log", ("failed",), command=words, cwd=str(tmp_path))


def by_address(courier, address):
    courier.keep("log", address)
    return Rule("log", ("failed",))


class TestCommand:
    def test_gets_the_event_on_stdin_and_in_its_environment(self, courier, tmp_path):
        script = (
            "import json, os, sys; json.dump([json.load(sys.stdin), sys.argv[1:], "
            "{n: v for n, v in os.environ.items() if n.startswith('HV_EVENT')}], open('out', 'w'))"
        )
        rule = to_command(tmp_path, sys.executable, "-c", script, "a word", "$HOME")
        assert courier.deliver(rule, NOTICE) is None
        got, words, env = json.loads((tmp_path / "out").read_text())
        assert got == DATA
        assert words == ["a word", "$HOME"]
        assert env == {
            "HV_EVENT": "failed",
            "HV_EVENT_NUMBER": "7",
            "HV_EVENT_RULE": "log",
            "HV_EVENT_MESSAGE": HOSTILE,
            "HV_EVENT_SAID": HOSTILE,
            "HV_EVENT_TASK": "t1",
            "HV_EVENT_BATCH": "b",
        }

    def test_hostile_text_is_never_run(self, courier, tmp_path):
        rule = to_command(tmp_path, "sh", "-c", 'cat > in; printf %s "$HV_EVENT_MESSAGE" > said')
        assert courier.deliver(rule, NOTICE) is None
        assert (tmp_path / "said").read_text() == HOSTILE
        assert sorted(each.name for each in tmp_path.iterdir()) == ["in", "said"]

    def test_a_nul_in_the_text_is_left_out(self, courier, tmp_path):
        notice = NOTICE._replace(data={**DATA, "message": "a\0b\ud800"})
        rule = to_command(tmp_path, "sh", "-c", 'printf %s "$HV_EVENT_MESSAGE" > said')
        assert courier.deliver(rule, notice) is None
        assert (tmp_path / "said").read_text() == "ab?"

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (("sh", "-c", "exit 7"), "exited with 7"),
            (("sh", "-c", "kill -9 $$"), "killed by signal 9"),
            (("/no/such/program",), "cannot start the command: No such file"),
        ],
    )
    def test_says_why_it_did_not_arrive(self, courier, tmp_path, words, why):
        assert why in str(courier.deliver(to_command(tmp_path, *words), NOTICE))

    def test_one_that_hangs_is_ended_with_its_children(self, courier, tmp_path, monkeypatch):
        monkeypatch.setattr(delivery, "COMMAND_TIMEOUT", 0.3)
        rule = to_command(tmp_path, "sh", "-c", "sleep 1000 & echo $! > pid; wait")
        assert "was stopped" in str(courier.deliver(rule, NOTICE))
        pid = int((tmp_path / "pid").read_text())
        wait_for(lambda: LocalHost().process_start(pid) is None, "the end of the child")

    def test_one_that_does_not_read_has_it_still(self, courier, tmp_path):
        notice = NOTICE._replace(data={**DATA, "data": "x" * 200_000})
        assert courier.deliver(to_command(tmp_path, "true"), notice) is None

    def test_does_not_get_the_password_of_the_store(self, courier, tmp_path, monkeypatch):
        monkeypatch.setenv("HYPERVISOR_STORE", "postgresql://u:s3cr3t@h/d")
        monkeypatch.setenv("PGPASSWORD", "s3cr3t")
        assert courier.deliver(to_command(tmp_path, "sh", "-c", "env > env"), NOTICE) is None
        assert "s3cr3t" not in (tmp_path / "env").read_text()


class TestWebhook:
    def test_gets_the_event_as_json(self, courier, receiver):
        assert courier.deliver(by_address(courier, receiver.url + "/hook"), NOTICE) is None
        assert receiver.got == [DATA]
        assert receiver.headers[0]["Idempotency-Key"] == "log/7/failed/"

    @pytest.mark.parametrize("code", [302, 400, 404, 429, 500, 503])
    def test_any_other_answer_is_none(self, courier, receiver, code):
        receiver.answers = [code]
        why = courier.deliver(by_address(courier, receiver.url + "/s3cr3t"), NOTICE)
        assert why == f"the receiver answered HTTP {code}"
        assert receiver.requests == 1, "a redirect is not followed"

    @pytest.mark.parametrize(
        "address",
        [
            "http://127.0.0.1:9/s3cr3t",
            "http://[s3cr3t",
            "http://x:s3cr3t/",
            "https://127.0.0.1:9/s3cr3t",
        ],
    )
    def test_the_address_is_in_no_message(self, courier, address):
        why = courier.deliver(by_address(courier, address), NOTICE)
        assert why is not None
        assert "s3cr3t" not in why


class TestApprise:
    def test_takes_it_to_what_apprise_knows(self, courier, receiver):
        address = receiver.url.replace("http://", "json://") + "/s3cr3t"
        assert courier.deliver(by_address(courier, address), NOTICE) is None
        assert receiver.got[0]["title"] == "Hypervisor: failed"
        assert "touch pwned" in receiver.got[0]["message"]

    def test_says_that_it_did_not_arrive_but_not_where(self, courier, receiver, capfd):
        receiver.answers = [500]
        address = receiver.url.replace("http://", "json://user:p4ssw0rd@") + "/s3cr3t"
        why = courier.deliver(by_address(courier, address), NOTICE)
        assert why is not None and why.startswith("apprise could not deliver it")
        told = why + "".join(capfd.readouterr())
        assert "s3cr3t" not in told and "p4ssw0rd" not in told

    def test_says_how_to_get_it_where_it_is_missing(self, courier, monkeypatch):
        monkeypatch.setitem(sys.modules, "apprise", None)
        why = str(courier.deliver(by_address(courier, "ntfy://s3cr3t"), NOTICE))
        assert why.startswith("apprise is not installed: ") and why.endswith(
            install_command("notify")
        )
        assert "s3cr3t" not in why

    def test_an_address_it_does_not_know(self, courier, capfd):
        why = courier.deliver(by_address(courier, "carrier-pigeon://s3cr3t"), NOTICE)
        assert why == "apprise does not understand the address"
        assert "s3cr3t" not in "".join(capfd.readouterr())


class TestAddress:
    def test_is_for_its_owner_only(self, courier, tmp_path):
        courier.keep("log", "https://example.org/s3cr3t")
        path = tmp_path / "data" / "notify" / "log"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        courier.forget("log")
        assert os.listdir(path.parent) == []

    def test_one_that_others_can_read_is_not_used(self, courier, tmp_path, receiver):
        rule = by_address(courier, receiver.url)
        os.chmod(tmp_path / "data" / "notify" / "log", 0o644)
        assert "chmod 600" in str(courier.deliver(rule, NOTICE))
        assert receiver.requests == 0
