"""A wall clock that is wrong, for all processes of a host, those it starts included."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long by(void) { const char *text = getenv("CLOCK_BY"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = syscall(SYS_clock_gettime, clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += by();
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def environment(folder: Path, seconds: int) -> dict[str, str]:
    """Variables that set the wall clock of processes by some seconds; other clocks stay right."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = folder / "clock.so"
    if not library.exists():
        source = folder / "clock.c"
        source.write_text(SOURCE)
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(words, check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "CLOCK_BY": str(seconds)}
