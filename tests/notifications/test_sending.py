"""Delivering with `hv notify send`, and rules that cannot be stored completely."""

from __future__ import annotations

import os

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.core.errors import WrongState
from tests.notifications.test_notify import Mailbox


class Falling(Mailbox):
    """A receiver that fails once, and a disk that is full at first."""

    def __init__(self):
        super().__init__()
        self.breaks = self.is_full = False
        self.complains = ""

    def keep(self, rule, address):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().keep(rule, address)

    def deliver(self, rule, notice, show_output=False):
        if self.complains:
            return self.complains
        if self.breaks:
            raise RuntimeError("no receiver does this")
        return super().deliver(rule, notice, show_output)


@pytest.fixture
def mailbox():
    return Falling()


@pytest.fixture
def hv(tmp_path, mailbox, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with hypervisor.open(tmp_path / "store.db") as opened:
        opened.courier = mailbox
        yield opened


@pytest.fixture
def due(hv):
    hv.add_rule("log", ["done"], ["x"])
    hv.add([NewTask("a")])
    hv.complete(hv.claim("w")[0].token)


def test_only_one_process_delivers_at_a_time(hv, mailbox, due):
    """Two would deliver the same notice twice, and out of order."""
    other = hv.launcher.acquire_lock_of("notifier")
    with pytest.raises(WrongState, match="another process"):
        hv.send_notices()
    assert mailbox.got == []
    os.close(other)
    done = hv.send_notices()
    assert (done.sent, done.missed, done.given_up, done.waiting) == (1, 0, 0, 0)
    assert mailbox.said == ["done: a"]


@pytest.mark.parametrize("breaks", [False, True])
def test_afterwards_another_one_may(hv, mailbox, due, breaks):
    mailbox.breaks = breaks
    if breaks:
        with pytest.raises(RuntimeError):
            hv.send_notices()
    else:
        hv.send_notices()
    held = hv.launcher.acquire_lock_of("notifier")
    assert held is not None
    os.close(held)


def test_a_rule_whose_address_cannot_be_kept_is_none(hv, mailbox):
    mailbox.is_full = True
    with pytest.raises(WrongState, match="No space left"):
        hv.add_rule("log", ["done"], address="https://example.org/x")
    assert hv.rules() == ()
    mailbox.is_full = False
    hv.add_rule("log", ["done"], address="https://example.org/x")
    assert [each.rule.name for each in hv.rules()] == ["log"]


def test_of_a_long_complaint_the_beginning_is_kept(hv, mailbox):
    hv.add_rule("log", ["done"], ["x"], tries=1)
    hv.add([NewTask("a")])
    hv.complete(hv.claim("w")[0].token)
    mailbox.complains = "no " * 10_000
    assert hv.send_notices().given_up == 1
    [letter] = hv.dead_letters()
    assert letter.error == ("no " * 10_000)[:500]
