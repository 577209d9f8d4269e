"""hv run"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator

from hypervisor.agents.preflight import agent_task
from hypervisor.batches.chunk import NONE
from hypervisor.batches.cut_chunks import DEFAULT_SIZE, ChunkLists, Cut, Numbering, check_cut
from hypervisor.batches.pipeline import PipelineRun, run_pattern
from hypervisor.batches.preflight import Intent, Survey
from hypervisor.cli import following
from hypervisor.cli.output import one_line, say
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run import opening, options, pipeline
from hypervisor.cli.run.arguments import name_for, skill_of, spec_of
from hypervisor.cli.run.sources import Source
from hypervisor.core import validate
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import counted
from hypervisor.hive.branch import branch_here
from hypervisor.inputs import items as reading
from hypervisor.inputs.duplicates import Repeats
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item, Template, parse
from hypervisor.queue.add import check_task
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.runs import run as running
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import template_of

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
    args.skill = skill_of(args)
    run_agents.check(args)
    if bool(args.fn) == bool(args.command) and not args.agent:
        both = "not both" if args.fn else "as in `hv run --items FILE -- gzip {}`"
        raise InvalidInput(f"say what to run: a command after --, or a function with --fn; {both}.")
    args.spec = check_spec(spec_of(args))
    args.template = template_of(args.spec) if args.command else None
    pipeline.prepare(args)
    _check_programs(args)
    agents = run_agents.survey(args) if args.agent else None
    args.batch_name = validate.label(
        "--name", name_for(args.spec, args) if args.name is None else args.name
    )
    args.base = _base(args)
    args.keys = parse(args.key) if args.key else None
    args.numbering = _numbering(args)
    args.survey = Survey(_intent(args), agents)
    args.source = Source(args)
    args.places = {}
    args.all_usable = False
    args.count = _check_items(args)
    _refuse_waiting_for_later(args)
    return opening.preview(args, _usable(args)) if args.dry_run else None


def run(hv: Context, args: argparse.Namespace) -> int:
    args.after = [hv.resolve(task) for task in args.after or ()]  # before anything is made
    if hv.launcher.supervisor() is None:
        hv.launcher.start_supervisor()  # it comes up while we add the tasks
    found = args.survey.result(hv) if args.survey.items else None
    args.findings = () if found is None else found.findings
    if args.agent and found is None:
        args.findings = tuple(args.survey.agents.findings(hv, args.count))
    chunks = args.numbering.names if args.numbering else ()
    whole = run_pattern(
        hv,
        args.spec,
        _tasks(hv, args),
        args.batch_name,
        args.then_specs,
        reduce=args.reduce_spec,
        chunks=chunks,
        together=found is not None and found.linked > 0,
    )
    args.source.close()
    if not args.json:
        opening.say_opening(whole, args, found)
    if whole.to_do:
        running.supervise(hv)
    if args.detach:
        code = opening.detached(whole, args, waits=hv.launcher.is_leaving())
    else:
        code = _follow(hv, whole, args)
    return _incomplete(args.left_out, code) if args.left_out else code


def _incomplete(left_out: int, code: int) -> int:
    """A run that left items out is not a success, however well the others went."""
    were = "was" if left_out == 1 else "were"
    print(
        f"hv: {counted(left_out, 'item')} {were} left out, see above. The others are kept; fix "
        f"{'it' if left_out == 1 else 'them'} and run the same command again.",
        file=sys.stderr,
    )
    return EXIT_UNSUCCESSFUL if code == EXIT_OK else code


def _follow(hv: Context, whole: PipelineRun, args: argparse.Namespace) -> int:
    """To the end, or to a checkpoint: there a person at a terminal is asked at once."""
    code = following.follow(hv, whole, args.json, args.quiet, args.left_out)
    if code == EXIT_CHECKPOINT and not (args.json or args.quiet):
        code = _ask(hv, whole)
    if (args.skill or args.numbering) and whole.to_do and not args.json:
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
        print(checkpoint.said(done))
        if not (done.opened or done.tasks or whole.pipeline):
            return EXIT_UNSUCCESSFUL if following.unsuccessful(hv, whole) else EXIT_OK
        code = following.follow(hv, whole, False, False)
    return code


def _write_report(hv: Context, batch: str) -> None:
    from hypervisor.batches.report import report
    from hypervisor.cli.commands.report import write

    try:
        path = write(hv, report(hv, batch))
    except OSError as error:  # the run itself is not worse for it
        print(f"hv: the report could not be written: {error.strerror}.", file=sys.stderr)
        return
    near = os.path.relpath(path)
    say(f"  report: {path if near.startswith('..') else near}")


def _numbering(args: argparse.Namespace) -> Numbering | None:
    cut = check_cut(Cut(args.chunk, args.chunk_by, args.chunk_size))
    if not any(cut) and args.gate == NONE and args.per == "item":
        return None
    return Numbering(cut if any(cut) else Cut(size=DEFAULT_SIZE))


def _check_programs(args: argparse.Namespace) -> None:
    """A program that is not there would fail once for every item. Where other hosts share the
    store it may be theirs."""
    if "://" in (args.store or os.environ.get("HYPERVISOR_STORE", "")):
        return
    own = None if args.agent or args.shell else args.python if args.fn else args.command[0]
    for program in ([own] if own else []) + pipeline.programs(args):
        there = os.path.join(args.spec.cwd, program) if "/" in program else program
        if "{" not in program and shutil.which(there) is None:
            raise InvalidInput(f"there is no program {program[:200]} that could be run.")


def _check_items(args: argparse.Namespace) -> int:
    template: Template | None = args.template
    repeats = Repeats()
    count, risky = 0, None
    for item in _usable(args):
        count += 1
        repeats.note(reading.likeness(item))
        if args.agent:
            args.survey.agents.add(agent_task(item, args.base))
        if args.numbering:
            args.numbering.see(item)
        if item.columns is not None and not _as_they_are(args):
            args.survey.add(item)
            if args.numbering and args.gate != NONE:
                args.places[task_for(item, args.base).key] = item
        if template is not None and risky is None and template.risky(item):
            risky = item.text
    if not count and args.problem is not None:
        raise args.problem  # the command fits none of them
    args.all_usable, args.repeated = args.problem is None, repeats.found()
    args.left_out = args.source.bad
    _tell_bad(args.source)
    if not count:
        named = ", ".join(args.items or ["standard input"])
        raise InvalidInput(f"there are no items in {named}. Nothing was started.")
    if risky is not None:
        print(
            f"hv: the item {one_line(risky[:60])!r} begins with a dash: the command may take it "
            "for an option (`-- {}` or `./{}` helps).",
            file=sys.stderr,
        )
    return count


def _as_they_are(args: argparse.Namespace) -> bool:
    """Some skills work on task files themselves: what those say does not keep them from it."""
    return args.skill is not None and args.skill.skill.items.paths


def _usable(args: argparse.Namespace) -> Iterator[Item]:
    """The items that the command can be made for; the others are left out and told."""
    if args.all_usable:  # as was found when they were read before
        yield from args.source
        return
    args.problem = None
    templates = [each for each in (args.template, args.keys) if each is not None]
    for item in args.source:
        try:
            for each in templates:
                each.check(None if item.columns is None else item.columns.keys())
                each.render(item)
            pipeline.check_item(args.then_templates, item)
        except InvalidInput as error:
            args.problem = args.problem or error
            args.source.leave_out(reading.place_of(item.text)[:200], str(error))
        else:
            yield item


def _refuse_waiting_for_later(args: argparse.Namespace) -> None:
    """Behind a checkpoint they would wait for each other for ever."""
    for key, needed in args.survey.links() if args.places else ():
        first, second = args.places.get(key), args.places.get(needed)
        if first and second and args.numbering.place(first) < args.numbering.place(second):
            raise InvalidInput(
                f"{first.text} waits for {second.text}, which is in a later chunk: behind a "
                "checkpoint it would wait for ever. Cut the batch otherwise, or use no gate. "
                "Nothing was started."
            )


def _tell_bad(source: Source) -> None:
    """Rows and files that cannot be used are left out, and said so."""
    for place, why in source.first_bad:
        print(f"hv: {one_line(place)}: {one_line(why)} Left out.", file=sys.stderr)
    if (more := source.bad - len(source.first_bad)) > 0:
        print(f"hv: {counted(more, 'more item')} left out.", file=sys.stderr)


def _intent(args: argparse.Namespace) -> Intent:
    """What the pre-flight has to know of the run."""
    requires = tuple(args.requires or ())
    in_text = args.spec.write_back == "status"  # task files are worked on: what they name counts
    return Intent(args.spec.cwd, args.batch_name, args.type, args.workers, requires, None, in_text)


def _base(args: argparse.Namespace) -> NewTask:
    """What all tasks have in common, checked."""
    base = NewTask(
        "an item",
        type=args.type,
        priority=args.priority,
        retries=args.retries,
        after=tuple(args.after or ()),
        requires=tuple(args.requires or ()),
        exclusive=tuple(args.key or ()),
        branch=args.branch,
    )
    return check_task(base)._replace(exclusive=())


def _tasks(hv: Context, args: argparse.Namespace) -> Iterator[NewTask]:
    base = NewTask(
        "",
        type=args.type,
        priority=args.priority,
        retries=args.retries,
        after=tuple(args.after or ()),
        requires=tuple(args.requires or ()),
        branch=args.branch or branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", "")) or "",
    )
    keys = parse(args.key, append=False) if args.key else None
    if args.per == "chunk":
        lists = ChunkLists(hv, args.batch_name, args.numbering.names)
        for item in _usable(args):
            if _as_they_are(args) or item.columns is None or not args.survey.skips(item):
                lists.add(args.numbering.place(item), item)
        yield from lists.tasks(base)
        return
    for item, occurrence in reading.occurrences(_usable(args), args.repeated):
        survey = None if item.columns is None or _as_they_are(args) else args.survey
        if survey and survey.skips(item):
            continue
        make = agent_task if args.agent else task_for
        task = make(item, base, occurrence)
        if survey:
            after, shared = survey.after_for(item), survey.exclusive_for(item)
            task = task._replace(after=(*task.after, *after), exclusive=shared)
        if args.numbering:
            task = task._replace(chunk=args.numbering.place(item))
        if args.agent:
            task = args.router.labelled(task)
        if keys is not None:
            own = dict.fromkeys((*task.exclusive, *keys.render(item)))
            task = task._replace(exclusive=tuple(own))
        yield task
