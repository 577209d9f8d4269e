"""Notifications: rules, the notices that follow from events, and their delivery.

An event that a rule asks for becomes a notice in the store, and stays there until it is delivered
or has been tried too often. After a crash the next process continues: everything is delivered at
least once, and for each rule in the order of the events.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.notifications.matching import collect
from hypervisor.notifications.notice import (
    MAX_TRIES,
    OTHER_NAMES,
    WORDS,
    Notice,
    NoticeState,
    Rule,
    trial,
)
from hypervisor.notifications.sql import notices
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.sql import queries

LEASE = 120_000  # after this long without a sign of life, another host takes over
MAX_ADDRESS_LENGTH = 4_000
MAX_WORDS = 200


class RuleStatus(NamedTuple):
    """A rule, and the state of its notices."""

    rule: Rule
    batch: str  # its name
    waiting: int
    failed: int
    reachable: bool  # from this host


class Delivered(NamedTuple):
    """The outcome of due notices."""

    sent: int = 0
    missed: int = 0
    given_up: int = 0
    waiting: int = 0  # not due yet, or for another host


def add_rule(
    hv: Context,
    name: str,
    on: Sequence[str],
    command: Sequence[str] = (),
    address: str | None = None,
    *,
    batch: str | None = None,
    type: str = "",
    tries: int = MAX_TRIES,
    now: int | None = None,
) -> Rule:
    """Send notifications about new events to a command or a URL."""
    _check_name(name)
    if bool(command) == bool(address):
        raise InvalidInput("a rule needs either a command or an address.")
    words = tuple(validate.text("the command", word) for word in command)
    if len(words) > MAX_WORDS:
        raise InvalidInput(f"the command has {len(words)} words (maximum {MAX_WORDS}).")
    rule = Rule(
        name,
        _words(on),
        batch_id(hv, batch) or "",
        validate.name("the type", type, empty=True),
        words,
        os.getcwd(),
        validate.number("the tries", tries, 1, 1_000),
        queries.end_of_log(hv.store),
    )
    if address:
        _check_address(address)
    hv.store.write(notices.add_rule, rule, hv.actor, hv.at(now))  # first: no address is overwritten
    if address:
        _keep_address(hv, name, address, hv.at(now))
    return rule


def _keep_address(hv: Context, name: str, address: str, now: int) -> None:
    try:
        hv.courier.keep(name, address)
    except OSError as error:
        hv.store.write(notices.remove_rule, name, hv.actor, now)
        raise WrongState(
            f"the address cannot be saved ({error.strerror}). Nothing was changed."
        ) from None


def remove_rule(hv: Context, name: str, now: int | None = None) -> None:
    """Remove a rule with its address and its undelivered notices."""
    if not hv.store.write(
        notices.remove_rule, validate.text("the rule", name), hv.actor, hv.at(now)
    ):
        raise _unknown(name)
    hv.courier.forget(name)


def rules(hv: Context) -> tuple[RuleStatus, ...]:
    """List the rules with the number of waiting and undeliverable notices."""
    waiting = hv.store.read(notices.waiting)
    failed = [
        notice.rule for notice in hv.store.read(notices.listed, NoticeState.FAILED, "", 10_000)
    ]
    names = {batch.id: batch.name for batch in hv.store.read(queries.batches, 100_000)}
    return tuple(
        RuleStatus(
            rule,
            names.get(rule.batch, rule.batch),
            waiting.get(rule.name, (0, 0))[0],
            failed.count(rule.name),
            hv.courier.can_reach(rule),
        )
        for rule in hv.store.read(notices.rules)
    )


def try_rule(hv: Context, name: str, now: int | None = None) -> None:
    """Send a test message with a rule now; fails if it does not arrive."""
    rule = _rule(hv, name)
    why = hv.courier.deliver(rule, trial(rule, hv.now() if now is None else now), show_output=True)
    if why is not None:
        raise WrongState(f"the test message was not delivered: {why}. Nothing was changed.")


def dead_letters(hv: Context, rule: str | None = None, limit: int = 100) -> tuple[Notice, ...]:
    """List the notices that could not be delivered, with the last reason."""
    validate.number("the limit", limit, 1, 100_000)
    return tuple(hv.store.read(notices.listed, NoticeState.FAILED, _named(hv, rule), limit))


def retry_notices(hv: Context, rule: str | None = None) -> int:
    """Retry the dead letters of one rule or of all."""
    return hv.store.write(notices.retry, _named(hv, rule))


def drop_notices(hv: Context, rule: str | None = None) -> int:
    """Delete the dead letters of one rule or of all."""
    return hv.store.write(notices.drop, _named(hv, rule))


def send_notices(hv: Context) -> Delivered:
    """Deliver all due notices now, for when no supervisor is running."""
    handle = hv.launcher.acquire_lock_of("notifier")
    if handle is None:
        raise WrongState("another process is already delivering notices here. Nothing was changed.")
    try:
        collect(hv)
        results = [deliver(hv, rule) for rule in hv.store.read(notices.rules)]
        waiting = sum(count for count, _ in hv.store.read(notices.waiting).values())
        return Delivered(
            sum(delivered.sent for delivered in results),
            sum(delivered.missed for delivered in results),
            sum(delivered.given_up for delivered in results),
            waiting,
        )
    finally:
        os.close(handle)


def reachable(hv: Context) -> list[Rule]:
    """The rules whose receivers this host can reach."""
    return [rule for rule in hv.store.read(notices.rules) if hv.courier.can_reach(rule)]


def deliver(
    hv: Context, rule: Rule, is_running: Callable[[], bool] = lambda: True, now: int | None = None
) -> Delivered:
    """Deliver the notices of a rule in order, until none is due or one does not arrive."""
    sent = 0
    courier = hv.courier
    holder = hv.probe.boot()
    while is_running() and courier.can_reach(rule):
        notice = hv.store.write_unsynced(
            notices.take, rule.name, holder, hv.at(now) + LEASE, hv.at(now)
        )
        if notice is None:
            break
        why = courier.deliver(rule, notice)
        if why is not None:
            state = hv.store.write(notices.missed, notice, why[:500], hv.at(now))
            return Delivered(
                sent, int(state == NoticeState.PENDING), int(state == NoticeState.FAILED)
            )
        hv.store.write_unsynced(notices.sent, notice)
        sent += 1
    return Delivered(sent)


def _rule(hv: Context, name: str) -> Rule:
    for rule in hv.store.read(notices.rules):
        if rule.name == name:
            return rule
    raise _unknown(name)


def _named(hv: Context, name: str | None) -> str:
    return "" if name is None else _rule(hv, name).name


def _unknown(name: str) -> NotFound:
    return NotFound(f"no rule named {name[:60]!r}. `hv notify ls` lists all rules.")


def _check_name(name: str) -> None:
    """The name is also used as a file name."""
    validate.name("the rule", name)
    if len(name) > 60 or not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidInput("a rule's name may only contain letters, digits, - and _, at most 60.")


def _words(on: Sequence[str]) -> tuple[str, ...]:
    on = [OTHER_NAMES.get(word, word) for word in on]
    wrong = next((word for word in on if word not in WORDS), None)
    if wrong is not None or not on:
        problem = f"unknown event {wrong[:40]!r}" if wrong is not None else "no event given"
        raise InvalidInput(f"{problem}; use one of {', '.join(WORDS)}.")
    return tuple(word for word in WORDS if word in on)


def _check_address(text: str) -> None:
    """Never quoted in a message: it may hold a secret."""
    if len(text) > MAX_ADDRESS_LENGTH or not text.isprintable() or "://" not in text or " " in text:
        raise InvalidInput("the address must be a URL, such as https://… or mailto://…")
