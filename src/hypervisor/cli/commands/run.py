"""hv run"""

import argparse

from hypervisor.batches.latest import note_latest_run
from hypervisor.batches.pipeline import PipelineRun
from hypervisor.batches.submit import unsuccessful
from hypervisor.cli import follow
from hypervisor.cli.output import near_path, one_line, print_json, say, warn
from hypervisor.cli.parser import Parser
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run import opening, options, pipeline, printing, workspaces
from hypervisor.cli.run.prepare import PreparedRun, prepare_run
from hypervisor.cli.run.request import request_of
from hypervisor.cli.run.submit import submit
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.runs.supervise import supervise

EXAMPLE = """find . -name '*.jpg' | hv run -- convert {} {.}.png
  hv run --items 'src/**/*.py' --workers 4 -- ruff check {}
  hv run --fn package.module:function --items rows.jsonl --retries 2
  hv run --agent claude --prompt review.md --items 'src/**/*.py' --budget 5
  hv run --items '*.log' --then 'sort {output}' --reduce 'wc -l {}' -- grep E {}
  hv run triage inbox/ --chunk month --gate each"""


def configure(parser: Parser) -> None:
    parser.usage = (
        "hv run [options] -- COMMAND …\n       hv run [options] --fn MODULE:FUNCTION\n"
        "       hv run [options] --agent NAME\n"
        "       hv run SKILL [PATH] [options]"
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="-- COMMAND",
        help="command to run for each item: {} item, {.} without extension, {/} base name, "
        "{//} folder, {/.} base name without extension, {#} number, {name} column; without any "
        "of these, the item is the last argument",
    )
    options.add_items(parser)
    options.add_how(parser)
    printing.add_options(parser)
    options.add_rerun(parser)
    run_agents.add_options(parser)
    workspaces.add_options(parser)
    pipeline.add_options(parser)
    options.add_review(parser)
    options.add_tasks(parser)
    options.add_limits(parser)
    # With a skill, the arguments are parsed again, and paths may follow options (`late`).
    parser.set_defaults(parser=parser, late=())
    skills = parser.add_argument_group("skills (hv skills lists them)")
    skills.add_argument("--copy", metavar="FOLDER", help="work on a copy of PATH, kept in FOLDER")
    parser.renamed = options.RENAMED
    parser.show_only(options.COMMON)


def prepare(args: argparse.Namespace) -> int | None:
    """Check everything that can be checked without a store; a dry run ends here."""
    args.prepared = prepare_run(request_of(args))
    if not args.prepared.items.count:
        return _nothing_to_run(args.prepared)
    printing.is_wanted(args.prepared.request, args.prepared.items.count)  # reports a mistake
    if not args.dry_run:
        return None
    opening.preview(args.prepared)
    return EXIT_OK


def run(hv: Context, args: argparse.Namespace) -> int:
    prepared: PreparedRun = args.prepared
    if not printing.is_wanted(prepared.request, prepared.items.count):
        return _run(hv, prepared)
    with printing.printing_to_stdout(hv, prepared.request) as outputs:
        return _run(hv, prepared, outputs)


def _run(hv: Context, prepared: PreparedRun, outputs: printing.Printing | None = None) -> int:
    request, items = prepared.request, prepared.items
    after = tuple(hv.resolve(task) for task in request.tasks.after)  # before anything is added
    supervise(hv, wait=False)  # it comes up while we add the tasks
    preflight = items.survey.result(hv) if items.survey else None
    findings = preflight.findings if preflight else ()
    if prepared.agents and preflight is None:
        findings = tuple(prepared.agents.survey.findings(hv, items.count))
    together = preflight is not None and preflight.linked > 0
    whole = submit(hv, prepared, after, together)
    note_latest_run(hv, whole.first.batch.id)
    items.close()
    if not request.json:
        opening.say_opening(whole, prepared, preflight, findings)
    if whole.to_do:
        supervise(hv)
    code = EXIT_OK
    if request.detach:
        opening.detached(whole, prepared, waits=hv.launcher.is_leaving())
    else:
        code = _follow(hv, whole, prepared, outputs)
    return _exit_code(prepared, code)


def _nothing_to_run(prepared: PreparedRun) -> int:
    """Having no items is an error only with --require-items."""
    request, items = prepared.request, prepared.items
    items.close()
    names = ", ".join(request.items.items or ["standard input"])
    if request.require_items:
        raise InvalidInput(f"no items in {names}. Nothing was started.")
    if request.json:
        print_json({"batch": prepared.batch_name, "to_do": 0, "left_out": items.left_out})
    else:
        warn(f"hv: no items in {one_line(names)}; nothing to run")
    return _exit_code(prepared, EXIT_OK)


def _exit_code(prepared: PreparedRun, code: int) -> int:
    """A run that left items out is unsuccessful, even if the others succeeded."""
    left_out = prepared.items.left_out
    if not left_out or prepared.request.skip_bad:
        return code
    were = "was" if left_out == 1 else "were"
    warn(
        f"hv: {pluralize(left_out, 'item')} {were} left out, see above. Fix "
        f"{'it' if left_out == 1 else 'them'} and run the same command again, or add --skip-bad."
    )
    return EXIT_UNSUCCESSFUL if code == EXIT_OK else code


def _follow(
    hv: Context, whole: PipelineRun, run: PreparedRun, outputs: printing.Printing | None
) -> int:
    """Follow the run to its end or to a checkpoint, where a person at a terminal is asked."""
    request, left_out = run.request, run.items.left_out
    code = follow.follow(hv, whole, request.json, request.quiet, left_out, printing=outputs)
    if code == EXIT_CHECKPOINT and not (request.json or request.quiet):
        code = _ask(hv, whole, outputs)
    if (request.skill or run.items.numbering) and whole.to_do and not request.json:
        _write_report(hv, whole.first.batch.id)
    return code


def _ask(hv: Context, whole: PipelineRun, outputs: printing.Printing | None) -> int:
    from hypervisor.cli import checkpoint

    code = EXIT_CHECKPOINT
    while code == EXIT_CHECKPOINT and checkpoint.can_ask():
        outputs = outputs and outputs.from_now_on(hv)
        print()
        done = checkpoint.ask(hv, whole.first.batch.id)
        if done is None:
            break
        print(checkpoint.decision_text(done))
        if not (done.opened or done.tasks or whole.pipeline):
            return EXIT_UNSUCCESSFUL if unsuccessful(hv, *whole.parts) else EXIT_OK
        code = follow.follow(hv, whole, False, False, printing=outputs)
    return code


def _write_report(hv: Context, batch: str) -> None:
    from hypervisor.batches.report import report
    from hypervisor.cli.commands.report import write

    try:
        path = write(hv, report(hv, batch))
    except OSError as error:  # this does not make the run a failure
        warn(f"hv: cannot write the report: {error.strerror}.")
        return
    say(f"  report: {near_path(path)}")
