"""Functions like those of users, and how the tests run them."""

from __future__ import annotations

import os
import select
import sys

import pytest

from hypervisor.queue.attempt import Ended

PATIENCE = 60_000
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfd")
FUNCTIONS = r"""
    import ctypes, os, signal, subprocess, sys, threading, time

    def same(item):
        return item

    async def later(item):
        import asyncio
        await asyncio.sleep(0)
        return [item, "awaited"]

    async def later_fails(item):
        raise LookupError("not " + item)

    class Shop:
        @staticmethod
        def sell(item):
            return "sold " + item

    def fails(item):
        raise ValueError(item)

    def exits(item):
        sys.exit(item)

    def interrupts(item):
        raise KeyboardInterrupt

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def fails_mutely(item):
        raise Mute

    def dies(item):
        print("last words")
        if item == "exit":
            os._exit(3)
        if item == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "segfault":
            ctypes.string_at(0)
        return os.getpid()

    def returns(item):
        return eval(item)

    def speaks(item):
        print("from Python")
        print("to stderr", file=sys.stderr)
        os.write(1, b"from os.write\n")
        subprocess.run(["echo", "from a subprocess"], check=True)
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        print("without a line end", end="")

    def closes(item):
        os.closerange(*item)

    def misbehaves(item):
        sys.stdout.close()
        sys.stderr.detach()
        os.chdir("/")

    def says(item):
        print(item)
        return os.getcwd()

    def about(item):
        return {
            "argv": sys.argv,
            "path": sys.path[0],
            "session": os.getsid(0) == os.getpid(),
            "stdin": sys.stdin.read(),
            "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
            "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
            "seen": os.environ.get("SEEN"),
            "python": sys.executable,
        }

    def descriptors(item):
        command = ["find", "/proc/self/fd", "-lname", "pipe:*", "-o", "-lname", "*hypervisor*"]
        return subprocess.check_output(command, text=True, close_fds=False).split()

    def forks(item):
        if os.fork() == 0:
            if item == "stays":
                signal.pause()
            return "the child"
        if item == "stays":
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        return "the parent"

    def leaves_a_thread(item):
        threading.Thread(target=time.sleep, args=(3600,)).start()

    def leaves_a_bomb(fuse):
        threading.Thread(target=lambda: (open(fuse).read(), os._exit(9))).start()
        return os.getpid()

    def breaks_protocol(item):
        for fd in range(900, 1024):
            try:
                os.write(fd, b"what?\n")
            except OSError:
                pass

    def allocates(item):
        return len(bytearray(item)) and None

    def burns(item):
        until = time.process_time() + item
        while time.process_time() < until:
            pass
        if item > 0.2:
            os._exit(1)

    def burns_in_child(item):
        code = "x = b'x' * 90_000_000; import time\nwhile time.process_time() < 0.2: pass"
        subprocess.run([sys.executable, "-c", code], check=True)

    def hangs(item):
        path, how = item
        child = subprocess.Popen(["sleep", "3600"]) if how == "with a child" else None
        if how == "in C with the lock":
            ctypes.PyDLL(None).system(f"echo started > {path}; exec sleep 3600".encode())
        with open(path, "w") as fifo:
            fifo.write("started")
        if how in ("in C", "with a child"):
            time.sleep(3600)
        while True:
            pass
"""


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def attempt(runner, item, output) -> Ended:
    runner.start(item, str(output))
    return wait(runner)


def wait(runner) -> Ended:
    ended: Ended | None = runner.finish()
    while ended is None:
        assert is_readable(runner.fileno()), "nothing came"
        ended = runner.finish()
    return ended


def is_readable(fd, patience=PATIENCE) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(patience))


class Fifo:
    """A function says that it has started by writing to it."""

    def __init__(self, path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self) -> None:
        assert is_readable(self._fd), "the function did not start"
        os.close(self._fd)
