"""Landlock: confines this process and all it starts, without namespaces.

Landlock limits access to files and, since its version 6, signals and abstract sockets. It does not
limit connections to sockets that are files, so a seccomp filter refuses to create such sockets.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

from hypervisor.runs.sandbox.plan import is_below

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION = 1
PATH_BENEATH = 1
NEEDED = 6  # scopes signals: Linux 6.12
SCOPES = 0b11  # abstract sockets, signals
# Access rights, by bit.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
ALL_FILES = (1 << 16) - 1  # of version 6: all up to ioctl on devices
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_DROP = 38, 22, 24
FILTER = 2
# By machine: the name of the architecture for seccomp, and the numbers of socket and io_uring_setup
MACHINES = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
EACCES, ENOSYS = 13, 38
MAX_ENTRIES = 20_000

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of Landlock; 0 without it."""
    return max(int(_libc.syscall(CREATE_RULESET, None, 0, GET_VERSION)), 0)


def is_usable() -> bool:
    return version() >= NEEDED and platform.machine() in MACHINES


def readable_rules(hidden: Iterable[str]) -> list[str]:
    """Paths that together are all of the file system except for the hidden ones. Landlock cannot
    take access away below a path, so the folders around hidden paths are listed one by one."""
    hidden = set(hidden)
    rules: list[str] = []
    folders = ["/"]
    while folders and len(rules) < MAX_ENTRIES:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.path in hidden or entry.path == "/dev":
                continue
            if any(is_below(path, entry.path) for path in hidden):
                folders.append(entry.path)
            elif not entry.is_symlink():
                rules.append(entry.path)
    return rules


def confine(read: Iterable[str], write: Iterable[str]) -> None:
    """Confine this process: it reads and writes only there, from now on. OSError: it cannot."""
    attributes = struct.pack("QQQ", ALL_FILES, 0, SCOPES)
    ruleset = _checked(_libc.syscall(CREATE_RULESET, attributes, len(attributes), 0))
    for path in read:
        _add(ruleset, path, READ)
    for name in DEVICES:
        _add(ruleset, f"/dev/{name}", ALL_FILES)
    for path in write:
        _add(ruleset, path, ALL_FILES)
    _drop_capabilities()
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    _refuse_unix_sockets()


def _add(ruleset: int, path: str, access: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is gone, or was never there: nothing to allow
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{handle}"):
            access &= OF_FILES
        rule = struct.pack("=Qi", access, handle)
        _checked(_libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0))
    finally:
        os.close(handle)


def _drop_capabilities() -> None:
    """Root without capabilities is bound by permissions like everyone else."""
    if os.geteuid() != 0:
        return
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    header = struct.pack("Ii", 0x20080522, 0)
    _checked(_libc.capset(header, struct.pack("6I", *[0] * 6)))


def _refuse_unix_sockets() -> None:
    """A seccomp filter: socket(AF_UNIX, …) and io_uring, which could do the same, are refused."""
    arch, socket_call, io_uring = MACHINES[platform.machine()]
    load, equal, at_least, done = 0x20, 0x15, 0x35, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    program = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, arch),
        (done, 0, 0, kill),
        (load, 0, 0, 0),  # the number of the call
        (at_least, 0, 1, 0x40000000),  # the second set of calls of x86-64
        (done, 0, 0, 0x00050000 | ENOSYS),
        (equal, 0, 1, io_uring),
        (done, 0, 0, 0x00050000 | ENOSYS),
        (equal, 0, 3, socket_call),
        (load, 0, 0, 16),  # its first argument
        (equal, 0, 1, 1),  # AF_UNIX
        (done, 0, 0, 0x00050000 | EACCES),
        (done, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _checked(_libc.prctl(PR_SET_SECCOMP, FILTER, header, 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
