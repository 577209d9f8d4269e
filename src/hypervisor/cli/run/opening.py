"""What `hv run` prints before anything runs: the opening, the dry run, where to look later."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hypervisor.batches.pipeline import PipelineRun
from hypervisor.batches.submit import Submitted
from hypervisor.cli.output import one_line, print_json, say, warn
from hypervisor.cli.run import agents
from hypervisor.cli.run.prepare import PreparedRun
from hypervisor.cli.run.workspaces import verification_note
from hypervisor.core.text import pluralize
from hypervisor.inputs.item_names import printable_path

if TYPE_CHECKING:
    from hypervisor.batches.preflight_findings import Finding, Preflight

SHOWN = 10
LINKED = "tasks that wait for others do not see their changes; --merge branch changes that"
DISK_ONLY = (
    "hv: /dev/shm is not in memory (tmpfs), so this shell's environment was not saved for the "
    "run: its commands get the environment of the supervisor. To keep it, mount a tmpfs on "
    "/dev/shm."
)


def say_opening(
    submitted: PipelineRun,
    run: PreparedRun,
    preflight: Preflight | None,
    findings: Sequence[Finding],
) -> None:
    """The batch and its items, later stages, and findings of the preflight."""
    lines = [_opening(submitted.first, run), *run.stages.lines()]
    if run.agents:
        lines.append(agents.opening(run.agents.spec, run.agents.survey, run.spec.workspace))
    lines += map(one_line, (*run.notes, *verification_note(submitted.first.batch.spec)))
    if preflight and preflight.linked and run.spec.workspace == "clone" and not run.spec.git.merge:
        lines.append(LINKED)
    if preflight and _adds_to(preflight, submitted.first):
        lines.append(one_line(preflight.headline))
    lines += [one_line(finding.message) for finding in findings if submitted.to_do]
    if not submitted.first.environment_kept:
        warn(DISK_ONLY)
    text = "\n  ".join(lines)
    (warn if run.request.quiet else say)(text)


def _adds_to(preflight: Preflight, submitted: Submitted) -> bool:
    """Whether the preflight knows more than which tasks of the batch are done."""
    is_news = preflight.complete > submitted.already_done
    return bool(preflight.findings or preflight.called_off or is_news)


def _opening(submitted: Submitted, run: PreparedRun) -> str:
    count = run.items.count
    parts = [
        f"{submitted.already_done:,} already done, skipped" if submitted.already_done else "",
        _redone(submitted.redone, run),
        f"{submitted.added:,} new" if submitted.added not in (0, count) else "",
        f"{submitted.retried:,} failed before, retrying" if submitted.retried else "",
        f"{submitted.still_open:,} still open" if submitted.still_open else "",
    ]
    details = "; ".join(filter(None, parts))
    opening = f"batch {submitted.batch.name}: {pluralize(count, 'item')}{_interpreter(run)}"
    return f"{opening} ({details})" if details else opening


def _interpreter(run: PreparedRun) -> str:
    """The Python that calls the function, if it was found in the environment."""
    function = run.spec.function
    if function is None or function.python is None or run.request.python:
        return ""
    return f", with {one_line(function.python)}"


def _redone(count: int, run: PreparedRun) -> str:
    if not count:
        return ""
    if run.items.rerun == "all":
        return f"{count:,} already done, running again"
    return f"{count:,} changed since {'it was' if count == 1 else 'they were'} done, running again"


def detached(submitted: PipelineRun, run: PreparedRun, waits: bool) -> None:
    """Print where to look, as the command does not wait. `waits`: for the next supervisor,
    because this one is shutting down."""
    batch = submitted.first.batch
    if run.request.json:
        answer = {"batch": batch.name, "id": batch.id, "to_do": submitted.to_do}
        print_json({**answer, "left_out": run.items.left_out})
        return
    if waits:
        print("the supervisor is shutting down; the next one starts when its tasks have finished")
    name = shlex.quote(batch.name)
    print(f"running in the background: hv status {name} --watch · hv summary {name}")


def _sandbox(run: PreparedRun) -> dict[str, str]:
    """The sandbox of a command, if it has one. SandboxUnavailable: it cannot be built."""
    from hypervisor.runs.sandbox.check import check_sandbox, described

    host = run.request.look()
    try:
        check_sandbox(host, run.spec)
        text = described(host, run.spec)
    finally:
        host.close()
    return {"sandbox": text} if text else {}


def preview(run: PreparedRun) -> None:
    """The dry run: what would be started, with later stages."""
    items = run.items.usable()
    if run.agents:
        agents.dry_run(run, run.agents, next(items), run.stages)
        return
    argvs = (
        run.template.render(item) if run.template else [run.request.fn or "", item.text]
        for item in islice(items, SHOWN)
    )
    commands = [list(map(printable_path, argv)) for argv in argvs]
    count, sandbox = run.items.count, _sandbox(run)
    if run.request.json:
        answer = {"batch": run.batch_name, "items": count, "commands": commands, **sandbox}
        print_json({**answer, **run.stages.as_json()})
        return
    for line in (
        *(one_line(shlex.join(argv)) for argv in commands),
        *run.stages.lines(),
        *(f"sandbox: {text}" for text in sandbox.values()),
        *map(one_line, run.notes),
    ):
        print(line)
    more = f", {count - SHOWN:,} of them not shown" if count > SHOWN else ""
    print(f"{pluralize(count, 'item')}{more} (dry run: nothing was started)")
