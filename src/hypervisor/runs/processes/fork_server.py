"""The fork server: a process with the worker code loaded, which forks a worker for each request.

It exists for one performance bar: `hv run` of 2,000 `true` against `xargs -P`
(docs/decisions/0029). Starting an interpreter takes as long as a hundred short commands. The fork
server is a child of the supervisor, forked before the store is opened: an open SQLite or PostgreSQL
connection must never cross a fork. It has its code and two pipes, and ends with the supervisor.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from hypervisor.runs.processes.daemon import read_line, redirect_output, set_process_title

Work = Callable[..., None]
BEGIN = b"\n"
PATIENCE = 5.0  # seconds; a fork server that hangs must not block the supervisor

logger = logging.getLogger("hypervisor.runs")


class ForkServer:
    def __init__(self, work: Work, prepare: Work = lambda *words: None) -> None:
        """Fork the server; `start` then makes processes that call `work`. Before each, the server
        calls `prepare` with the same words: it loads code that is shared from then on."""
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _run_and_exit(_serve, requests, answers, (self._requests, self._answers), work, prepare)
        os.close(requests)
        os.close(answers)

    def start(self, words: Sequence[str], log: str) -> int | None:
        """The process id of a new worker, which is a child of the nearest subreaper above us; None
        if the fork server does not answer."""
        answer = b""
        with suppress(OSError, ValueError):
            os.write(self._requests, json.dumps([list(words), log]).encode() + b"\n")
            answer = read_line(self._answers, PATIENCE)
            if answer.endswith(b"\n"):
                os.write(self._requests, BEGIN)
        if not answer.endswith(b"\n"):
            logger.warning("the fork server does not answer; starting workers without it")
            self.close()  # a late answer would be taken for the answer to the next request
            return None
        return int(answer.strip() or 0) or None

    def close(self) -> None:
        """The server exits when its pipes are closed."""
        for handle in (self._requests, self._answers):
            if handle >= 0:
                os.close(handle)
        self._requests = self._answers = -1


def _serve(requests: int, answers: int, others: Sequence[int], work: Work, prepare: Work) -> None:
    for handle in others:
        os.close(handle)
    set_process_title("fork-server")
    while (request := read_line(requests)).endswith(b"\n"):
        words, log = json.loads(request)
        prepare(*words)
        gc.freeze()  # or a collection in a worker would copy every shared page
        begin_read, begin_write = os.pipe()
        between = os.fork()
        if not between:
            pipes = (requests, answers, begin_read, begin_write)
            _run_and_exit(_fork_worker, pipes, words, log, work)
        os.close(begin_read)
        os.waitpid(between, 0)
        os.write(answers, b"\n")  # only now does the worker have its final parent
        if os.read(requests, 1) == BEGIN:  # one byte: the next request may already be waiting
            with suppress(BrokenPipeError):  # the worker is already gone
                os.write(begin_write, BEGIN)
        os.close(begin_write)


def _fork_worker(pipes: Sequence[int], words: list[str], log: str, work: Work) -> None:
    """Fork twice, so that the worker becomes the supervisor's child. It starts only when the
    supervisor knows its process id."""
    requests, answers, begin_read, begin_write = pipes
    if worker := os.fork():
        os.write(answers, b"%d" % worker)
        return
    os.close(begin_write)
    if not os.read(begin_read, 1):
        return
    for handle in (requests, answers, begin_read):
        os.close(handle)
    os.setsid()
    redirect_output(log)
    set_process_title("work", *words)
    work(*words)


def _run_and_exit(function: Callable[..., None], *arguments: object) -> None:
    """Call the function and exit, whatever happens: the caller's code must not run twice."""
    code = 1
    try:
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
