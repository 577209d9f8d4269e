"""hv run"""

import argparse
import sys

from hypervisor.batches.pipeline import PipelineRun, run_pattern
from hypervisor.cli import follow
from hypervisor.cli.output import near_path, say
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run import opening, options, pipeline
from hypervisor.cli.run.prepare import PreparedRun, prepare_run
from hypervisor.cli.run.request import request_of
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.runs import run as running
from hypervisor.runs.supervise import supervise

EXAMPLE = """find . -name '*.jpg' | hv run -- convert {} {.}.png
  hv run --items 'src/**/*.py' --workers 4 -- ruff check {}
  hv run --fn package.module:function --items rows.jsonl --retries 2
  hv run --agent claude --prompt review.md --items 'src/**/*.py' --budget 5
  hv run --items '*.log' --then 'sort -u {output}' --reduce 'python3 merge.py {}' -- grep ERR {}
  hv run triage inbox/ --chunk month --gate each"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "hv run [options] -- COMMAND …\n       hv run [options] --fn MODULE:FUNCTION\n"
        "       hv run [options] --agent NAME\n"
        "       hv run SKILL [PATH] [options]"
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="-- COMMAND",
        help="what to run for each item: {} item, {.} without extension, {/} base name, "
        "{//} folder, {/.} both, {#} number, {name} column; without any, the item comes last",
    )
    options.add_items(parser)
    options.add_how(parser)
    run_agents.add_options(parser)
    pipeline.add_options(parser)
    options.add_review(parser)
    options.add_tasks(parser)
    options.add_limits(parser)
    # A skill has it read the words again, and takes those that come behind options.
    parser.set_defaults(parser=parser, late=())
    parser.add_argument(
        "--copy", metavar="FOLDER", help="a skill works on a copy of PATH there, made once"
    )


def prepare(args: argparse.Namespace) -> int | None:
    """Check everything that can be checked without a store; a rehearsal ends here."""
    args.prepared = prepare_run(request_of(args))
    if not args.dry_run:
        return None
    opening.preview(args.prepared)
    return EXIT_OK


def run(hv: Context, args: argparse.Namespace) -> int:
    prepared: PreparedRun = args.prepared
    request, items, survey = prepared.request, prepared.items, prepared.survey
    after = tuple(hv.resolve(task) for task in request.tasks.after)  # before anything is made
    supervise(hv, wait=False)  # it comes up while we add the tasks
    preflight = survey.result(hv) if survey.items else None
    findings = preflight.findings if preflight else ()
    if survey.agents and preflight is None:
        findings = tuple(survey.agents.findings(hv, items.count))
    whole = run_pattern(
        hv,
        prepared.spec,
        items.tasks(hv, prepared.batch_name, after),
        prepared.batch_name,
        prepared.stages.then,
        reduce=prepared.stages.reduce,
        chunks=items.numbering.names if items.numbering else (),
        together=preflight is not None and preflight.linked > 0,
    )
    items.close()
    if not request.json:
        opening.say_opening(whole, prepared, preflight, findings)
    if whole.to_do:
        supervise(hv)
    code = EXIT_OK
    if request.detach:
        opening.detached(whole, prepared, waits=hv.launcher.is_leaving())
    else:
        code = _follow(hv, whole, prepared)
    return _incomplete(items.left_out, code) if items.left_out else code


def _incomplete(left_out: int, code: int) -> int:
    """A run that left items out is not a success, however well the others went."""
    were = "was" if left_out == 1 else "were"
    print(
        f"hv: {pluralize(left_out, 'item')} {were} left out, see above. The others are kept; fix "
        f"{'it' if left_out == 1 else 'them'} and run the same command again.",
        file=sys.stderr,
    )
    return EXIT_UNSUCCESSFUL if code == EXIT_OK else code


def _follow(hv: Context, whole: PipelineRun, run: PreparedRun) -> int:
    """To the end, or to a checkpoint: there a person at a terminal is asked at once."""
    request = run.request
    code = follow.follow(hv, whole, request.json, request.quiet, run.items.left_out)
    if code == EXIT_CHECKPOINT and not (request.json or request.quiet):
        code = _ask(hv, whole)
    if (request.skill or run.items.numbering) and whole.to_do and not request.json:
        _write_report(hv, whole.first.batch.id)
    return code


def _ask(hv: Context, whole: PipelineRun) -> int:
    from hypervisor.cli import checkpoint

    code = EXIT_CHECKPOINT
    while code == EXIT_CHECKPOINT and checkpoint.can_ask():
        print()
        done = checkpoint.ask(hv, whole.first.batch.id)
        if done is None:
            break
        print(checkpoint.decision_text(done))
        if not (done.opened or done.tasks or whole.pipeline):
            return EXIT_UNSUCCESSFUL if running.unsuccessful(hv, *whole.parts) else EXIT_OK
        code = follow.follow(hv, whole, False, False)
    return code


def _write_report(hv: Context, batch: str) -> None:
    from hypervisor.batches.report import report
    from hypervisor.cli.commands.report import write

    try:
        path = write(hv, report(hv, batch))
    except OSError as error:  # the run itself is not worse for it
        print(f"hv: the report could not be written: {error.strerror}.", file=sys.stderr)
        return
    say(f"  report: {near_path(path)}")
