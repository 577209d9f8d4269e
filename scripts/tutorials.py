"""Runs the commands of the tutorials and keeps the outputs in the pages true.

    python scripts/tutorials.py [--check] [PAGE …]

In a `console` block, a line that starts with `$ ` is a command, with its here-document if it
has one. The lines below it are what it prints: standard output, then standard error. Every page
runs from top to bottom in an empty folder, /home/ann/NAME in the page. An output is rewritten
only where more differs than ids, tokens, times and sizes. `--check` shows the difference instead
and exits with 1.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hypervisor.resources.process_table import environment, snapshot

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "tutorials"
HOME = "/home/ann"  # in the pages
TIMEOUT_S = 300
HERE_DOCUMENT_END = "EOF"

# A busy machine must not change what is printed.
CONFIG = """
[governor]
strategy = "parallel"
cpu_warning = 1.0
cpu_danger = 1.0
ram_warning = 1.0
ram_danger = 1.0
ram_emergency = 1.0
stall = 100
ceiling = 1.0
"""

LETTER = "[0-9a-hjkmnp-tv-z]"
ID_OR_NONCE = re.compile(rf"\b1{LETTER}{{11}}\b|(?<=\.){LETTER}{{16}}\b")
VARYING = [
    # What a run prints only when it takes long.
    (
        re.compile(
            r"^(waiting: nothing has been started yet|[\d,]+ of [\d,]+ done.*)(\n|\Z)", re.M
        ),
        "",
    ),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r" in [\d.,]+ (ms|s|min)( \d+ s)?( \([\d.,]+/(s|min|h)\))?"), " in DURATION"),
    (re.compile(r"CPU [\d.]+ s( · peak memory [\d.]+ [kKMG]?B)?"), "CPU"),
    (re.compile(r"[\d.]+ m?s of work"), "DURATION of work"),
    (re.compile(r"@[\w.-]+/\d+\.\w+"), "@HOST/PID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"\b[0-9a-f]{40}-[0-9a-f]{16}(\.\d+)?\.log\b"), "VERIFICATION.log"),
    (re.compile(r" +$", re.M), ""),
]
FAILURES = re.compile(rf"(?:^✗ 1{LETTER}{{11}} .*\n)+", re.M)  # in the order they end


@dataclass
class Step:
    """A command of a page and what the page says that it prints."""

    command: str
    output: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in [f"$ {self.command}", *self.output])


@dataclass
class Names:
    """The ids and nonces of a page, and those of this run in their place."""

    real: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def learn(self, expected: str, actual: str) -> None:
        """Pair the names of two outputs by their order; names that are new to both only."""
        for shown, real in zip(_names(expected), _names(actual), strict=False):
            if shown not in self.real and real not in self.shown:
                self.real[shown], self.shown[real] = real, shown
        for real in _names(actual):
            if real not in self.shown:
                self.real[real], self.shown[real] = real, real

    def in_command(self, command: str) -> str:
        return ID_OR_NONCE.sub(lambda match: self.real.get(match[0], match[0]), command)

    def in_page(self, output: str) -> str:
        return ID_OR_NONCE.sub(lambda match: self.shown.get(match[0], match[0]), output)


def _names(output: str) -> list[str]:
    return list(dict.fromkeys(ID_OR_NONCE.findall(output)))


def parse(page: str) -> list[str | Step]:
    """The page as text and steps; joined again they are the page."""
    parts: list[str | Step] = []
    lines = iter(page.splitlines())
    in_console = False
    for line in lines:
        if in_console and line.startswith("$ "):
            parts.append(Step(_whole_command(line[2:], lines)))
        elif in_console and line != "```":
            step = parts[-1]
            if not isinstance(step, Step):
                raise ValueError(f"a console block must start with a command, not with: {line}")
            step.output.append(line)
        else:
            in_console = line == "```console"
            parts.append(f"{line}\n")
    return parts


def _whole_command(line: str, following: Iterator[str]) -> str:
    command = [line]
    if f"<<'{HERE_DOCUMENT_END}'" in line:
        for body in following:
            command.append(body)
            if body == HERE_DOCUMENT_END:
                break
    return "\n".join(command)


def render(parts: list[str | Step]) -> str:
    return "".join(part.text() if isinstance(part, Step) else part for part in parts)


def without_varying(output: str) -> str:
    for pattern, word in VARYING:
        output = pattern.sub(word, output)
    return FAILURES.sub(lambda match: "".join(sorted(match[0].splitlines(True))), output)


class Shell:
    """Runs commands one by one in an empty folder below a home of its own."""

    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self.folder = home / name
        self.folder.mkdir()
        runtime = home / ".run"
        runtime.mkdir(mode=0o700)
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(home),
            "USER": "ann",
            "LOGNAME": "ann",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(runtime),
        }
        self.exit_code = 0

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.exit_code})\n{command}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
        )
        self.exit_code = done.returncode
        return (done.stdout + done.stderr).replace(str(self.home), HOME)

    def ignore_load(self) -> None:
        """Keep the load of this machine out of the outputs."""
        config = self.folder / ".hypervisor" / "config.toml"
        if config.parent.is_dir():
            settings = config.read_text() if config.exists() else ""
            if CONFIG not in settings:
                config.write_text(settings + CONFIG)

    def end(self) -> None:
        """Stop the supervisor and the MCP server, known by a variable that only they have."""
        deadline = time.monotonic() + TIMEOUT_S
        while pids := self._processes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"still running: {pids}")
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)

    def _processes(self) -> list[int]:
        mark = f"XDG_RUNTIME_DIR={self.env['XDG_RUNTIME_DIR']}".encode()
        processes = snapshot().values()
        return [p.pid for p in processes if p.lives and mark in environment(p.pid)]


@contextmanager
def shell(name: str) -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="hv") as home:
        made = Shell(Path(home), name)
        try:
            yield made
        finally:
            made.end()


def played(page: str, name: str) -> str:
    """The page with the outputs that its commands have now."""
    parts = parse(page)
    names = Names()
    with shell(name) as sh:
        if "mkdir -m 700 .hypervisor" not in page:
            (sh.folder / ".hypervisor").mkdir(mode=0o700)
        for step in parts:
            if isinstance(step, Step):
                sh.ignore_load()
                _play(step, sh, names)
    return render(parts)


def _play(step: Step, sh: Shell, names: Names) -> None:
    actual = sh.run(names.in_command(step.command))
    expected = "\n".join(step.output)
    names.learn(expected, actual)
    actual = names.in_page(actual).removesuffix("\n")
    if without_varying(actual) != without_varying(expected):
        step.output = actual.splitlines()


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    pages = [Path(word) for word in arguments if word != "--check"]
    stale = False
    for page in pages or sorted(PAGES.glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = played(old, page.stem)
        if new != old and check:
            stale = True
            lines = (old.splitlines(True), new.splitlines(True))
            sys.stdout.writelines(difflib.unified_diff(*lines, str(page), "printed now"))
        elif new != old:
            page.write_text(new, encoding="utf-8")
            print(f"{page} written")
    if stale:
        print("outputs have changed; run: make tutorials", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
