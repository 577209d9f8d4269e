"""Logging of the supervisor, workers and the notifier, which share one file: `supervisor.log`.

A line has the time, the level, the room, the process and, where there is one, the batch and the
task; an uncaught exception comes with its traceback. Rooms use `logging.getLogger` as usual. The
commands that scripts call often do not log and must not load this.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from contextlib import suppress
from typing import Any

from hypervisor.runs.processes.daemon import LOG_LEVEL, redirect_output

LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s[%(process)d]%(about)s: %(message)s"
MAX_SIZE = 10 << 20  # bytes; one older file is kept as .old
CREDENTIALS = re.compile(r"://[^\s'\"]*@")
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}

_about: dict[str, str] = {}  # batch and task of every line of this process


def log_level(default: str) -> str:
    """The level set by HV_LOG_LEVEL, if valid."""
    level = os.environ.get(LOG_LEVEL, "").lower()
    return level if level in LEVELS else default


def configure(default: str = "info") -> None:
    """Log to stderr, which is supervisor.log in the background."""
    logger = logging.getLogger("hypervisor")
    logger.setLevel(log_level(default).upper())
    handler = BoundedHandler(sys.stderr)
    handler.setFormatter(Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    logger.handlers = [handler]
    logger.propagate = False
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda thread: _log_uncaught(*thread[:3])


def bind(**about: str) -> None:
    """Add a batch or a task to all further lines of this process."""
    _about.update(about)


class Formatter(logging.Formatter):
    """Always one line per message, and never the credentials of a URL."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        about = {name: getattr(record, name, _about.get(name)) for name in ("batch", "task")}
        record.about = "".join(f" {name}={value}" for name, value in about.items() if value)
        record.message = record.message.translate(CONTROL)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return CREDENTIALS.sub("://…@", super().format(record))


class BoundedHandler(logging.StreamHandler[Any]):
    """Rotates a log file that stderr goes to when it is too large. The first process that notices
    renames it; the others reopen it."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            path = os.readlink("/proc/self/fd/2").removesuffix(" (deleted)").removesuffix(".old")
            if path.endswith(".log"):
                self._keep_bounded(path)
        super().emit(record)

    def _keep_bounded(self, path: str) -> None:
        ours, current = os.fstat(2), os.stat(path)
        is_current = (ours.st_dev, ours.st_ino) == (current.st_dev, current.st_ino)
        if is_current and ours.st_size > MAX_SIZE:
            os.rename(path, f"{path}.old")
        if not is_current or ours.st_size > MAX_SIZE:
            redirect_output(path)


def _log_uncaught(kind: Any, error: Any, trace: Any) -> None:
    logging.getLogger("hypervisor").critical("uncaught exception", exc_info=(kind, error, trace))
