"""Workers by fork: a process that has loaded their code waits for the word, and multiplies.

To come up from nothing, an interpreter takes longer than hundreds of short commands. The
nursery is a child of the supervisor, forked before that opens the store: what SQLite and
PostgreSQL know of an open database must never go through a fork. It has nothing but its code
and two pipes, and is gone as soon as the supervisor is.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

Work = Callable[..., None]
BEGIN = b"\n"
PATIENCE = 5.0  # seconds; what was stopped by somebody shall not stop the supervisor too


class ForkServer:
    def __init__(self, work: Work) -> None:
        """Fork it: from here on, `start` makes processes that do `work`."""
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _alone(_serve, requests, answers, (self._requests, self._answers), work)
        os.close(requests)
        os.close(answers)

    def start(self, words: Sequence[str], log: str) -> int | None:
        """The process id of a new worker, which the nearest reaper above us has for a child;
        None if that could not be: the nursery may have been killed."""
        answer = b""
        with suppress(OSError, ValueError):
            os.write(self._requests, json.dumps([list(words), log]).encode() + b"\n")
            answer = line(self._answers, PATIENCE)
            if answer.endswith(b"\n"):
                os.write(self._requests, BEGIN)
        if not answer.endswith(b"\n"):
            self.close()  # one that answers late would answer the wrong question
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
    call_ourselves("nursery")
    gc.freeze()  # what is loaded stays: to look through it would copy every page of it
    while (request := line(requests)).endswith(b"\n"):
        words, log = json.loads(request)
        known, tell = os.pipe()
        between = os.fork()
        if not between:
            _alone(_bring_forth, (requests, answers, known, tell), words, log, work)
        os.close(known)
        os.waitpid(between, 0)
        os.write(answers, b"\n")  # only now is the worker whose it shall be, if there is one
        if os.read(requests, 1) == BEGIN:  # no more: the next request may be there already
            with suppress(BrokenPipeError):  # it is gone already
                os.write(tell, BEGIN)
        os.close(tell)


def _bring_forth(handles: Sequence[int], words: list[str], log: str, work: Work) -> None:
    """Whoever is between ends at once, so that the worker is the supervisor's child. A worker
    that the supervisor does not know of, or that nobody can tell so, never begins."""
    requests, answers, known, tell = handles
    if worker := os.fork():
        os.write(answers, b"%d" % worker)
        return
    os.close(tell)
    if not os.read(known, 1):
        return
    for handle in (requests, answers, known):
        os.close(handle)
    os.setsid()
    write_to(log)
    call_ourselves("work", *words)
    work(*words)


def _alone(do: Callable[..., None], *arguments: object) -> None:
    """Do it and end here, whatever comes: nothing of the caller's may run twice."""
    code = 1
    try:
        do(*arguments)
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


def write_to(log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if handle > 2:
        os.close(handle)


def call_ourselves(*words: str) -> None:
    """Show in lists of processes what we are, in place of what the supervisor was started as;
    cut to the room that there is. Without it, all would go by the supervisor's name."""
    with suppress(OSError, ValueError, IndexError, ImportError), open("/proc/self/stat", "rb") as f:
        import ctypes

        start, end = (int(field) for field in f.read().rpartition(b")")[2].split()[45:47])
        with open("/proc/self/cmdline", "rb") as file:
            whole = file.read()
        if len(whole) != end - start:
            return
        ours = whole.split(b"\0")[:4]  # the interpreter, -I, -c and the program
        text = b"\0".join([*ours, *(word.encode() for word in words)])[: len(whole) - 1]
        ctypes.memmove(start, text.ljust(len(whole), b"\0"), len(whole))


def line(handle: int, patience: float | None = None) -> bytes:
    """Up to the next newline: whoever writes waits for an answer before the next line."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([handle], [], [], patience)[0]:
            return text
        piece = os.read(handle, 4096)
        if not piece:
            return text
        text += piece
    return text
