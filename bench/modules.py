"""make bench-modules: how many of Hypervisor's modules four everyday flows load.

All processes of a flow count: commands, supervisor, workers, the MCP pipe and its server. A module
that several of them load counts once; an `__init__.py` does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.support import progress, save, scratch, table

ROOT = Path(__file__).parent.parent
MAX_LENGTH = 60.0  # s that a flow may take
# Python runs it at the start of every process of the environment made for the flow.
RECORDER = """
import os, sys

def record(event, args):
    if event == "exec" and args[0].co_filename.startswith({source!r}):
        file = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{{os.getpid()}} {{args[0].co_filename}}\\n".encode())
        os.close(file)

sys.addaudithook(record)
"""
AGENT = """
[agents.stand-in]
like = "claude"
program = "{program}"
keys = []
login = []
"""
# A preflight asks every agent for its version before the batch starts.
STAND_IN = """\
#!/bin/sh
case $1 in --version) exec echo "1.0.0 (stand-in)";; esac
exec cat << 'END'
{"type": "system", "subtype": "init", "session_id": "bench"}
{"type": "result", "subtype": "success", "is_error": false, "session_id": "bench", "num_turns": 1, \
"total_cost_usd": 0, "usage": {"input_tokens": 1, "output_tokens": 1}, \
"structured_output": {"status": "completed", "summary": "Done."}, "result": "Done."}
END
"""
CLIENT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Environment:
    """A checkout, run by a virtual environment that records what is imported."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.source, self.folder, self.log = checkout / "src", folder, folder / "imports"
        venv.create(folder / "venv", symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = folder / "venv" / "lib" / version / "site-packages"
        libraries = checkout / ".venv" / "lib" / version / "site-packages"
        recorder = RECORDER.format(source=f"{self.source}/hypervisor/", log=str(self.log))
        (packages / "recorder.py").write_text(recorder)
        (packages / "recorder.pth").write_text(f"{self.source}\n{libraries}\nimport recorder\n")
        project = tomllib.loads((checkout / "pyproject.toml").read_text())
        module, function = project["project"]["scripts"]["hv"].split(":")
        program = f"from {module} import {function} as main; main()"
        self.hv = [str(folder / "venv" / "bin" / "python"), "-I", "-c", program]
        self.environ = {**os.environ, "HYPERVISOR_STORE": str(folder / "store" / "store.db")}
        (folder / "store").mkdir()

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self.hv, *words],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=MAX_LENGTH,
        )
        if done.returncode:
            raise SystemExit(f"hv {' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def imports(self) -> dict[int, set[str]]:
        """The modules of each process that has loaded some, as paths below the source."""
        processes: dict[int, set[str]] = {}
        for line in self.log.read_text().splitlines():
            pid, _, path = line.partition(" ")
            if not path.endswith("__init__.py"):
                name = str(Path(path).relative_to(self.source / "hypervisor"))
                processes.setdefault(int(pid), set()).add(name)
        return processes

    def modules(self) -> set[str]:
        return set().union(*self.imports().values())

    def end(self, signals: Sequence[int] = (0, signal.SIGTERM, signal.SIGKILL)) -> None:
        """Let the processes in the background end, then make them."""
        for number in signals:
            if wait_until(partial(self._is_gone, number), 8.0):
                return

    def _is_gone(self, number: int) -> bool:
        is_gone = True
        for pid in self.imports():
            with suppress(OSError):
                if str(self.folder).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, number)
                    is_gone = False
        return is_gone


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def add_claim_done(environment: Environment) -> None:
    environment.run("add", "a task")
    claim = json.loads(environment.run("claim", "--worker", "bench", "--json"))[0]
    environment.run("done", claim["token"])


def run_commands(environment: Environment) -> None:
    environment.run("run", "--item", "a", "--item", "b", "--", "echo", "{}")


def run_agent(environment: Environment) -> None:
    program = environment.folder / "stand-in"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    config = environment.folder / "store" / "config.toml"
    config.write_text(AGENT.format(program=program))
    environment.run("run", "--agent", "stand-in", "--item", "a", "--prompt", "Do {}.")


def spawn_over_mcp(environment: Environment) -> None:
    environment.run("add", "a task that makes the store")
    environment.log.unlink()
    arguments = {"tasks": ["a", "b"], "command": ["touch", "{}"]}
    client = subprocess.Popen(
        [*environment.hv, "mcp"],
        env=environment.environ,
        cwd=environment.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None and client.stdout is not None
    requests = (
        {"id": 0, "method": "initialize", "params": CLIENT},
        {"id": 1, "method": "tools/list", "params": {}},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "spawn_parallel_tasks", "arguments": arguments},
        },
    )
    for request in requests:
        client.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
        client.stdin.flush()
        answer = json.loads(client.stdout.readline())
        if "error" in answer or answer["result"].get("isError"):
            raise SystemExit(f"{request['method']}: {answer}")
    if not wait_until(lambda: (environment.folder / "b").exists(), MAX_LENGTH):
        raise SystemExit("the tasks that were spawned did not run")
    client.communicate(timeout=MAX_LENGTH)


FLOWS: dict[str, Callable[[Environment], None]] = {
    "add → claim → done": add_claim_done,
    "hv run": run_commands,
    "hv run --agent": run_agent,
    "spawn over MCP": spawn_over_mcp,
}


def measure(checkout: Path, parent: str | None) -> dict[str, list[str]]:
    """The modules that each flow loads."""
    modules: dict[str, list[str]] = {}
    for name, flow in FLOWS.items():
        progress(f"{checkout}: {name}")
        with scratch(parent) as folder:
            environment = Environment(checkout, folder)
            try:
                flow(environment)
            finally:
                environment.end()
            modules[name] = sorted(environment.modules())
    return modules


def main() -> int:
    args = _arguments()
    ours = measure(ROOT, args.dir)
    answer: dict[str, Any] = {"modules": ours}
    if args.base is None:
        print(table(("flow", "modules"), [(name, f"{len(ours[name])}") for name in FLOWS]))
    else:
        base = measure(args.base.resolve(), args.dir)
        answer["base"] = base
        print(table(("flow", "base", "here", "change"), [_row(n, base, ours) for n in FLOWS]))
    print(f"\nwritten to {save(args.json, 'modules', answer)}")
    return 0


def _row(name: str, base: dict[str, list[str]], ours: dict[str, list[str]]) -> tuple[str, ...]:
    before, now = len(base[name]), len(ours[name])
    return name, f"{before}", f"{now}", f"{now / before - 1:+.0%}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.modules", description=__doc__)
    parser.add_argument("--base", type=Path, metavar="CHECKOUT", help="compare with this one")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/modules.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
