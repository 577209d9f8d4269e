"""What `hv run` says before anything runs: the opening, the dry run, where to look later."""

import shlex
import sys
from collections.abc import Sequence
from itertools import islice

from hypervisor.batches.pipeline import PipelineRun
from hypervisor.batches.preflight_findings import Finding, Preflight
from hypervisor.cli.output import one_line, print_json, say
from hypervisor.cli.run import agents
from hypervisor.cli.run.prepare import PreparedRun
from hypervisor.core.text import pluralize
from hypervisor.runs.run import Submitted

SHOWN = 10
DISK_ONLY = (
    "hv: /dev/shm is not in memory (tmpfs), so this shell's environment was not kept for the run: "
    "its commands get the environment of the supervisor. "
    "Mount a tmpfs on /dev/shm to keep it."
)


def say_opening(
    submitted: PipelineRun,
    run: PreparedRun,
    preflight: Preflight | None,
    findings: Sequence[Finding],
) -> None:
    """What there is to do, and what should be known of it."""
    lines = [_opening(submitted.first, run.items.count), *run.stages.lines()]
    if run.agents:
        lines.append(agents.opening(run.spec, run.agents.survey))
    if preflight and (preflight.findings or preflight.complete or preflight.called_off):
        lines.append(one_line(preflight.headline))
    lines += [one_line(finding.said) for finding in findings if submitted.to_do]
    if not submitted.first.environment_kept:
        print(DISK_ONLY, file=sys.stderr)
    text = "\n  ".join(lines)
    print(text, file=sys.stderr) if run.request.quiet else say(text)


def _opening(submitted: Submitted, count: int) -> str:
    parts = [
        f"{submitted.already_done:,} already done, skipped" if submitted.already_done else "",
        f"{submitted.added:,} new" if submitted.added not in (0, count) else "",
        f"{submitted.retried:,} failed before, tried again" if submitted.retried else "",
        f"{submitted.still_open:,} still open" if submitted.still_open else "",
    ]
    details = "; ".join(filter(None, parts))
    opening = f"batch {submitted.batch.name}: {pluralize(count, 'item')}"
    return f"{opening} ({details})" if details else opening


def detached(submitted: PipelineRun, run: PreparedRun, waits: bool) -> None:
    """Where to look, as nobody stays to watch. `waits`: behind a supervisor that was asked to
    end, for the next one."""
    batch = submitted.first.batch
    if run.request.json:
        answer = {"batch": batch.name, "id": batch.id, "to_do": submitted.to_do}
        print_json({**answer, "left_out": run.items.left_out})
        return
    if waits:
        print("the supervisor was asked to end: the next one begins when what it runs has ended")
    name = shlex.quote(batch.name)
    print(f"runs in the background: hv status {name} --watch · hv summary {name}")


def preview(run: PreparedRun) -> None:
    """The dry run: what would be started, and what would follow."""
    items = run.items.usable()
    if run.agents:
        agents.dry_run(run, run.agents, next(items), run.stages)
        return
    commands = [
        run.template.render(item) if run.template else [run.request.fn or "", item.text]
        for item in islice(items, SHOWN)
    ]
    count = run.items.count
    if run.request.json:
        answer = {"batch": run.batch_name, "items": count, "commands": commands}
        print_json({**answer, **run.stages.as_json()})
        return
    for line in (*(one_line(shlex.join(argv)) for argv in commands), *run.stages.lines()):
        print(line)
    more = f", {count - SHOWN:,} of them not shown" if count > SHOWN else ""
    print(f"{pluralize(count, 'item')}{more} (dry run: nothing was started)")
