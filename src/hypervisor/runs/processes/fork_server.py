"""Workers by fork: a process that has loaded their code forks one for each request.

It stays for one bar: `hv run` of 2,000 `true` against `xargs -P` (docs/decisions/0029). An
interpreter takes as long to come up as a hundred short commands. The fork server is a child of the
supervisor, forked before that opens the store: what SQLite and PostgreSQL know of an open database
must never go through a fork. It has its code and two pipes, and ends with the supervisor.
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
PATIENCE = 5.0  # seconds; a fork server that was stopped must not stop the supervisor too

logger = logging.getLogger("hypervisor.runs")


class ForkServer:
    def __init__(self, work: Work) -> None:
        """Fork it: from here on, `start` makes processes that do `work`."""
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _run_and_exit(_serve, requests, answers, (self._requests, self._answers), work)
        os.close(requests)
        os.close(answers)

    def start(self, words: Sequence[str], log: str) -> int | None:
        """The process id of a new worker, a child of the nearest reaper above us; None if the
        fork server does not answer: it may have been killed."""
        answer = b""
        with suppress(OSError, ValueError):
            os.write(self._requests, json.dumps([list(words), log]).encode() + b"\n")
            answer = read_line(self._answers, PATIENCE)
            if answer.endswith(b"\n"):
                os.write(self._requests, BEGIN)
        if not answer.endswith(b"\n"):
            logger.warning("the fork server does not answer; workers are started without it")
            self.close()  # a late answer would be taken for the answer to the next request
            return None
        return int(answer.strip() or 0) or None

    def close(self) -> None:
        """It ends by itself then."""
        for handle in (self._requests, self._answers):
            if handle >= 0:
                os.close(handle)
        self._requests = self._answers = -1


def _serve(requests: int, answers: int, others: Sequence[int], work: Work) -> None:
    for handle in others:
        os.close(handle)
    set_process_title("fork-server")
    gc.freeze()  # what is loaded stays: to look through it would copy every page of it
    while (request := read_line(requests)).endswith(b"\n"):
        words, log = json.loads(request)
        begin_read, begin_write = os.pipe()
        between = os.fork()
        if not between:
            pipes = (requests, answers, begin_read, begin_write)
            _run_and_exit(_fork_worker, pipes, words, log, work)
        os.close(begin_read)
        os.waitpid(between, 0)
        os.write(answers, b"\n")  # only now has the worker, if there is one, its final parent
        if os.read(requests, 1) == BEGIN:  # no more: the next request may be there already
            with suppress(BrokenPipeError):  # it is gone already
                os.write(begin_write, BEGIN)
        os.close(begin_write)


def _fork_worker(pipes: Sequence[int], words: list[str], log: str, work: Work) -> None:
    """The process in between ends at once, so that the worker is the supervisor's child. A worker
    that the supervisor does not know of never begins."""
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
    """Call it and end here, whatever comes: nothing of the caller's may run twice."""
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
