"""Submitting a prepared run; conflicts are resolved by asking the person at the terminal."""

from __future__ import annotations

from hypervisor.batches.pipeline import PipelineRun, run_pattern
from hypervisor.cli.run.prepare import PreparedRun
from hypervisor.cli.run.request import Words
from hypervisor.core.errors import BatchConflict, BatchPaused
from hypervisor.queue.context import Context
from hypervisor.runs.rerun import Rerun

CHOICES: dict[str, Rerun] = {"a": "all", "s": "unfinished"}
QUESTION = "[a] run everything again  [s] skip done items  [q] quit: "


def submit(hv: Context, prepared: PreparedRun, after: Words, together: bool) -> PipelineRun:
    """`after`: complete ids."""
    rerun = prepared.request.rerun
    while True:
        try:
            return _submit(hv, prepared, after, together, rerun)
        except BatchPaused as error:
            if not _agrees_to_resume(error):
                raise
            from hypervisor.runs.control import resume

            resume(hv, error.batch)
        except BatchConflict as error:
            choice = _choice(error) if rerun == "changed" else None
            if choice is None:
                raise
            rerun = choice
            prepared.items.choose_rerun(hv, rerun)


def _submit(
    hv: Context, prepared: PreparedRun, after: Words, together: bool, rerun: Rerun
) -> PipelineRun:
    items = prepared.items
    return run_pattern(
        hv,
        prepared.spec,
        items.tasks(hv, prepared.batch_name, after),
        prepared.batch_name,
        prepared.stages.then,
        reduce=prepared.stages.reduce,
        chunks=items.numbering.names if items.numbering else (),
        together=together,
        rerun=rerun,
    )


def _agrees_to_resume(error: BatchPaused) -> bool:
    from hypervisor.cli import checkpoint

    if not checkpoint.can_ask():
        return False
    print(error)
    return checkpoint.ask_line("resume it? [y/N] ").lower() in ("y", "yes")


def _choice(error: BatchConflict) -> Rerun | None:
    from hypervisor.cli import checkpoint

    if not checkpoint.can_ask():
        return None
    print(error)
    return CHOICES.get(checkpoint.ask_line(QUESTION).lower())
