"""The interpreter: calls one function for each item in turn.

client.py runs it as a separate program, with the Python that has the user's packages. So it uses
only the standard library, nothing from Hypervisor, and nothing newer than Python 3.9.

A request is a line of JSON, or only its length if the worker has put it into the request file
because it was too long for a pipe. An answer is a line of JSON. An attempt writes to the output
file that its request names. The interpreter never outlives its worker.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

REQUESTS, ANSWERS, REQUEST_FILE = 3, 4, 5
MAX_LINE_SIZE = 4096  # bytes that any empty pipe takes in one write
MAX_RESULT_SIZE = 1_000_000
MAX_ERROR_LENGTH = 1_000
PR_SET_PDEATHSIG = 1

Function = Callable[[Any], Any]
_encode = json.JSONEncoder(allow_nan=False).encode  # in case the function patches the module


def main() -> None:
    name, folder = sys.argv[1:]
    worker = Worker()
    worker.exit_with_parent()
    sys.argv[1:] = []
    memory = Memory()
    function = _load_or_explain(name, folder, worker)
    while True:
        _serve(function, folder, worker, memory)


class Memory:
    """The peak since the last restart, of this process or of a child that ended."""

    def __init__(self) -> None:
        self._clear: int | None = None
        with suppress(OSError):
            self._clear = _move_out_of_reach(os.open("/proc/self/clear_refs", os.O_WRONLY))
        # Before exec we shared the worker's memory: ru_maxrss starts with its peak.
        reported, real = _maxrss(resource.RUSAGE_SELF), _high_water()
        self._inherited = reported if reported > real > 0 else 0
        self._children = 0

    def restart(self) -> None:
        self._children = _maxrss(resource.RUSAGE_CHILDREN)
        if self._clear is not None:
            with suppress(OSError):
                os.write(self._clear, b"5")

    def peak(self) -> int:
        own, children = _maxrss(resource.RUSAGE_SELF), _maxrss(resource.RUSAGE_CHILDREN)
        if own <= self._inherited:
            own = _high_water() or own
        return max(own, children) if children > self._children else own


def _maxrss(whose: int) -> int:
    return resource.getrusage(whose).ru_maxrss * 1024


def _high_water() -> int:
    """Slower than ru_maxrss, and Linux only."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            return int(file.read(8192).split(b"VmHWM:")[1].split(None, 1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


class Worker:
    """The worker at the other end of the pipes."""

    def __init__(self) -> None:
        self._requests, self._answers, self._file = (
            _move_out_of_reach(fd) for fd in (REQUESTS, ANSWERS, REQUEST_FILE)
        )
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._hang_up)

    def request(self) -> Any:
        line = os.read(self._requests, MAX_LINE_SIZE)
        if not line:
            os._exit(0)
        request = json.loads(line)
        return json.loads(os.pread(self._file, request, 0)) if isinstance(request, int) else request

    def answer(self, line: str) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked and its child returned: only the parent answers
        remaining = memoryview(line.encode() + b"\n")
        while remaining:
            remaining = remaining[os.write(self._answers, remaining) :]

    def exit_with_parent(self) -> None:
        """In two ways: the thread is portable, the kernel does not need the GIL."""
        threading.Thread(target=self._watch, name="hypervisor-watch", daemon=True).start()
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._requests, 0)  # not for requests, only for the end of the pipe
        poll.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def _hang_up(self) -> None:
        """A forked child must not keep the pipes open after the interpreter has died."""
        for fd in (self._requests, self._answers, self._file):
            with suppress(OSError):
                os.close(fd)


def _move_out_of_reach(fd: int) -> int:
    """Move a descriptor up, away from code that closes or reuses low numbers."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    high = min(most, 1024) if most > 0 else 1024
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, high - 8)
    os.close(fd)
    return moved


def _load_or_explain(name: str, folder: str, worker: Worker) -> Function:
    _renew_streams()
    try:
        function = _load(name, folder)
    except BaseException as error:
        _print_traceback(error)
        _flush()
        message = f"cannot load {_printable(name)}: {_one_line(error)}"
        worker.answer(_encode({"ready": False, "error": message, "cpu": _cpu()}))
        os._exit(1)
    worker.answer(_encode({"ready": True, "cpu": _cpu()}))
    return function


def _load(name: str, folder: str) -> Function:
    os.chdir(folder)
    if os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]  # or our modules would shadow the user's
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise ValueError("name it as package.module:function")
    if not module.startswith("hypervisor.skills."):  # or the user's files would shadow ours
        sys.path.insert(0, folder)
    function: Any = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"it is of type {type(function).__name__}, which is not callable")
    return function  # type: ignore[no-any-return]


def _serve(function: Function, folder: str, worker: Worker, memory: Memory) -> None:
    request = worker.request()
    memory.restart()
    outcome = _attempt(function, folder, request)
    if "folder" in request:
        os.chdir("/")  # a workspace that a process is in cannot be moved away
    worker.answer(f'{{{outcome}, "cpu": {_cpu():.6f}, "peak": {memory.peak()}}}')


def _attempt(function: Function, folder: str, request: Any) -> str:
    """Call the function; returns the outcome as members of a JSON object."""
    try:
        os.chdir(request.get("folder", folder))  # the previous item may have changed it
        os.environ.update(request.get("env", {}))
        _redirect(request["output"])
        _renew_streams()
        _set_note(request.get("note"))
    except OSError as error:
        return _failed(_one_line(error))
    try:
        result = function(request["item"])
        if isinstance(result, Coroutine):
            result = _wait_for(result)
    except BaseException as error:
        _flush()
        _print_traceback(error)
        return _failed(_one_line(error))
    _flush()
    return _returned(result)


def _wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def _returned(result: Any) -> str:
    try:
        text = _encode(result)
    except Exception as error:
        return _failed(f"the result cannot be kept as JSON: {_one_line(error)}")
    if len(text) > MAX_RESULT_SIZE:
        return _failed(
            f"the result is too large: {len(text):,} bytes as JSON (maximum {MAX_RESULT_SIZE:,}); "
            "write it to a file and return its path"
        )
    return f'"ok": true, "result": {text}'


def _failed(message: str) -> str:
    return f'"ok": false, "error": {_encode(message)}'


def _set_note(note: str | None) -> None:
    """Set HV_NOTE: what a reviewer wants done differently this time."""
    if note:
        os.environ["HV_NOTE"] = note.replace("\0", " ")
    else:
        os.environ.pop("HV_NOTE", None)


def _redirect(output: str) -> None:
    """Send stdout and stderr to the output, including those of C code and subprocesses."""
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    if fd > 2:
        os.close(fd)


def _renew_streams() -> None:
    """Make the streams line-buffered: a crash loses no line, and followers see them at once."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if _is_gone(stream):
            setattr(sys, name, os.fdopen(fd, "w", 1, errors="backslashreplace", closefd=False))
        elif stream is getattr(sys, f"__{name}__") and not stream.line_buffering:
            stream.reconfigure(line_buffering=True)


def _is_gone(stream: Any) -> bool:
    try:
        return stream is None or bool(getattr(stream, "closed", False))
    except ValueError:  # detached from its buffer
        return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _print_traceback(error: BaseException) -> None:
    """Without our own frame, and directly to fd 2: the function may have replaced sys.stderr."""
    trace = error.__traceback__ and error.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    with suppress(OSError):
        os.write(2, text.encode("utf-8", "backslashreplace"))


def _one_line(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    message = _printable(" ".join(message[: 4 * MAX_ERROR_LENGTH].split()))
    text = ": ".join(part for part in (type(error).__name__, message) if part)
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _cpu() -> float:
    """Total CPU seconds, including ended children; the worker computes differences."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:
        _print_traceback(error)
    os._exit(70)  # sys.exit would wait for threads
