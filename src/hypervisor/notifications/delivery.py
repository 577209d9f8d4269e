"""Delivers notices: to a command, a webhook, or anything that apprise supports.

An address may hold a secret, so it is kept in a separate file next to the store, readable by its
owner only, and appears in no message, argument or log.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import STORE, STORE_SECRETS
from hypervisor.notifications.notice import Notice, Rule

FOLDER = "notify"
COMMAND_TIMEOUT = 60.0  # seconds that a command may take
WEB_TIMEOUT = 15.0
MAX_VALUE_LENGTH = 4_000
MIN_SECRET_LENGTH = 4


class NoticeSender:
    def __init__(self, data: str) -> None:
        self._folder = os.path.join(data, FOLDER)

    # Addresses

    def keep(self, rule: str, address: str) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = self._path(rule)
        handle = os.open(path + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(address + "\n")
            os.fsync(handle)
        os.rename(path + ".new", path)

    def forget(self, rule: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(rule))

    def can_reach(self, rule: Rule) -> bool:
        return bool(rule.command) or os.path.exists(self._path(rule.name))

    # Delivery

    def deliver(self, rule: Rule, notice: Notice, show_output: bool = False) -> str | None:
        """Deliver a notice. Returns why it did not arrive, None if it did."""
        if rule.command:
            return _run(rule, notice, show_output)
        try:
            address = self._address(rule.name)
        except (OSError, InvalidInput) as error:
            return str(error)
        if address.startswith(("http://", "https://")):
            return _post(address, notice)
        return _through_apprise(address, notice)

    def _address(self, rule: str) -> str:
        path = self._path(rule)
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise InvalidInput(f"other users can read {path}; run: chmod 600 {path}")
            return file.read().strip()

    def _path(self, rule: str) -> str:
        return os.path.join(self._folder, rule)


def _run(rule: Rule, notice: Notice, show_output: bool) -> str | None:
    """The event is passed on standard input and in the environment, never in the arguments."""
    import subprocess

    out = None if show_output else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            rule.command,
            cwd=rule.cwd or None,
            env=_environment(notice),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"cannot start the command: {getattr(error, 'strerror', None) or error}"
    try:
        process.communicate(_json(notice), timeout=COMMAND_TIMEOUT)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the command took more than {COMMAND_TIMEOUT:.0f} s and was stopped"
    code = process.returncode
    if code < 0:
        return f"the command was killed by signal {-code}"
    return f"the command exited with {code}" if code else None


def _environment(notice: Notice) -> dict[str, str]:
    env = dict(os.environ)
    if "://" in env.get(STORE, ""):
        for name in (STORE, *STORE_SECRETS):
            env.pop(name, None)
    data = notice.data
    variables = {
        "HV_EVENT": notice.what,
        "HV_EVENT_NUMBER": notice.number,
        "HV_EVENT_RULE": notice.rule,
        "HV_EVENT_MESSAGE": data.get("message"),
        "HV_EVENT_SAID": data.get("message"),  # its old name
        "HV_EVENT_TASK": data.get("task"),
        "HV_EVENT_BATCH": data.get("batch"),
    }
    return {**env, **{name: _value(value) for name, value in variables.items()}}


def _value(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:MAX_VALUE_LENGTH]


def _json(notice: Notice) -> bytes:
    return json.dumps(notice.data).encode() + b"\n"


def _post(address: str, notice: Notice) -> str | None:
    """One POST with the event as JSON. Redirects are not followed: they might lead elsewhere."""
    import http.client
    import re
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    key = f"{notice.rule}/{notice.number}/{notice.what}/{notice.mark}"
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "hypervisor",
        "Idempotency-Key": re.sub(r"[^\w/-]", "-", key),
    }
    try:
        request = Request(address, _json(notice), headers, method="POST")
        with build_opener(NoRedirects).open(request, timeout=WEB_TIMEOUT):
            return None
    except HTTPError as error:
        return f"the receiver answered HTTP {error.code}"
    except URLError as error:
        return f"the receiver cannot be reached: {_redacted(str(error.reason), address)}"
    except TimeoutError:
        return "the receiver timed out"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"the receiver cannot be reached: {_redacted(str(error), address)}"


def _through_apprise(address: str, notice: Notice) -> str | None:
    try:
        import apprise
    except ImportError:
        from hypervisor.core.extras import install_command

        return f"apprise is not installed: {install_command('notify')}"
    import logging

    logging.getLogger("apprise").addHandler(logging.NullHandler())
    logging.getLogger("apprise").propagate = False
    kind = apprise.NotifyType.WARNING if notice.what != "done" else apprise.NotifyType.SUCCESS
    with apprise.LogCapture(level=logging.WARNING) as log:  # type: ignore[no-untyped-call]
        receiver = apprise.Apprise()
        if not receiver.add(address):
            return "apprise does not understand the address"
        arrived = receiver.notify(
            body=str(notice.data.get("message", notice.what)),
            title=f"Hypervisor: {notice.what}",
            notify_type=kind,
            body_format=apprise.NotifyFormat.TEXT,
        )
        lines = log.getvalue().strip().splitlines()
    if arrived:
        return None
    last = lines[-1] if lines else ""
    return f"apprise could not deliver it. {_redacted(last, address)}".strip()


def _redacted(text: str, address: str) -> str:
    """The text without the parts of the address that could be secret."""
    import re

    parts = {part for part in re.split(r"[/:@?&=#,;+]+", address) if len(part) >= MIN_SECRET_LENGTH}
    for part in sorted(parts | {address}, key=len, reverse=True):
        text = text.replace(part, "…")
    return text[:300]
