"""The phases around an attempt in its workspace: setting up before it, tearing down after it.

Commands are the user's own, from config.toml. A note outside the workspace says that a teardown is
due, so it is made up for when the worker is killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.files import write_file
from hypervisor.git.recipe import bring_files, run_commands
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.environment import environment_for
from hypervisor.runs.watch import LeaseCheck, signal_check
from hypervisor.runs.workspaces import NotSetUp, StoppedEarly

if TYPE_CHECKING:
    from hypervisor.git.recipe import Ran
    from hypervisor.git.repository import Repository
    from hypervisor.git.workspace import Workspace
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Lease
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.worker import WorkerContext

DUE = "teardown-due"
MAX_SKIPPED = 10


def set_up(
    ctx: WorkerContext,
    lease: Lease,
    workspace: Workspace,
    repository: Repository,
    variables: Mapping[str, str],
) -> None:
    """Bring files along and run the setup commands. NotSetUp: one of them failed. StoppedEarly:
    the attempt must end."""
    task, recipe = lease.task, ctx.settings.workspace
    skipped = bring_files(repository, workspace, recipe).skipped
    if skipped:
        ctx.note("setup", {"message": f"not copied: {'; '.join(skipped[:MAX_SKIPPED])}"}, task.id)
    if not recipe.setup and not recipe.teardown:
        return
    write_file(os.path.join(workspace.state, DUE), json.dumps(dict(variables)))
    if not recipe.setup:
        return
    output = ctx.outputs.setup_path(task.id, task.attempts)
    make_private_folders(os.path.dirname(output))
    ctx.note("setup", {"message": f"setting up: {'; '.join(recipe.setup)}"}, task.id)
    started = time.monotonic()
    env = _environment(ctx.hv, ctx.spec, ctx.batch, task.id, task.attempts) | dict(variables)
    ran = run_commands(
        recipe.setup,
        workspace.folder,
        env,
        output,
        timeout=recipe.timeout / 1000,
        look=_stopping(ctx, lease),
    )[-1]
    if not ran.succeeded:
        raise NotSetUp(f"setting up failed: {_failure(ran)}; its output: hv logs {task.id} --setup")
    took = round(time.monotonic() - started, 1)
    ctx.note("setup", {"message": f"set up in {took:g} s", "seconds": took}, task.id)


def tear_down(ctx: WorkerContext, lease: Lease, workspace: Workspace) -> None:
    """Run the teardown commands, if the attempt was set up."""
    check = LeaseCheck(ctx, lease, time.monotonic())

    def keep_claim() -> None:
        with suppress(StoreError):
            check.lost(time.monotonic())

    task = lease.task
    output = ctx.outputs.setup_path(task.id, task.attempts)
    problem = tear_down_later(
        ctx.hv, workspace, (ctx.spec, ctx.batch), (task.id, task.attempts), output, keep_claim
    )
    if problem:
        with suppress(StoreError):
            ctx.note("setup", {"message": problem}, task.id)


def tear_down_later(
    hv: Context,
    workspace: Workspace,
    batch: tuple[RunSpec, str],
    attempt: tuple[str, int],
    output: str,
    look: Callable[[], None] = lambda: None,
) -> str:
    """The same for an attempt whose worker may be gone. Returns what went wrong, or ""."""
    due = os.path.join(workspace.state, DUE)
    recipe, variables = hv.settings.workspace, _read(due)
    if variables is None:
        return ""
    problem = ""
    if recipe.teardown and os.path.isdir(workspace.folder):
        make_private_folders(os.path.dirname(output))
        env = _environment(hv, *batch, *attempt) | variables
        seconds = recipe.timeout / 1000
        ran = run_commands(
            recipe.teardown, workspace.folder, env, output, timeout=seconds, look=look
        )[-1]
        problem = "" if ran.succeeded else f"tearing down failed: {_failure(ran)}"
    with suppress(FileNotFoundError):
        os.unlink(due)
    return problem


def _stopping(ctx: WorkerContext, lease: Lease) -> Callable[[], None]:
    """Keeps the claim, and raises StoppedEarly when the attempt must end."""
    check, signal = LeaseCheck(ctx, lease, time.monotonic()), signal_check(ctx)

    def look() -> None:
        now = time.monotonic()
        stop = signal(now)
        with suppress(StoreError):
            stop = stop or check.requested(now) or check.lost(now)
        if stop is not None:
            raise StoppedEarly(stop)

    return look


def _environment(hv: Context, spec: RunSpec, batch: str, task: str, attempt: int) -> dict[str, str]:
    """With the mark by which processes of a dead worker are found."""
    given = hv.launcher.environment(batch)
    env = environment_for(spec, dict(os.environ) if given is None else given, batch)
    return {**env, "HV_TASK": task, tree.MARK: f"{task}.{attempt}"}


def _failure(ran: Ran) -> str:
    how = "took too long" if ran.exit_code is None else f"exited with {ran.exit_code}"
    return f"`{ran.command[:100]}` {how}"


def _read(path: str) -> dict[str, str] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return {str(key): str(value) for key, value in json.load(file).items()}
    except (OSError, ValueError, AttributeError):
        return None
