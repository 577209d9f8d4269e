"""hv skills"""

import argparse
import os
import sys
from collections.abc import Sequence

from hypervisor.cli.arguments import add_words
from hypervisor.cli.output import (
    BOLD,
    DIM,
    block,
    clock,
    columns_here,
    duration,
    near_path,
    one_line,
    paragraphs,
    print_lines,
    respond,
    table,
    wrapped,
)
from hypervisor.cli.render import WIDE, cost_text
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.inputs.task_files.yaml_text import to_yaml
from hypervisor.learning.learn import Learned
from hypervisor.queue.context import Context
from hypervisor.skills.create import MadeSkill, new_skill
from hypervisor.skills.folders import skill_names
from hypervisor.skills.skills import SkillDetails, SkillRecord, SkillView, skill, skills

EXAMPLE = """hv skills
  hv skills show triage
  hv skills new lint --from ruff-3f2a1c         # in this project
  hv skills new lint --from ruff-3f2a1c --user  # in all your projects"""
WORDS = {"show": "show a skill in full", "new": "create a skill from a batch"}
MAX_RECORD_LENGTH = 40
HEAD = ("SKILL", "FROM", "RECORD", "DESCRIPTION")


def configure(parser: argparse.ArgumentParser) -> None:
    add_words(parser, WORDS, "NAME", "name of the skill")
    parser.add_argument("--from", dest="batch", metavar="BATCH", help="new: the batch to save")
    parser.add_argument(
        "--user", action="store_true", help="new: for all your projects, not only this one"
    )
    parser.add_argument("--description", default="", metavar="TEXT", help="new: its description")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="new: show the files, write nothing"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.name and not args.word:
        raise InvalidInput("`hv skills list` takes no name. See `hv skills --help`.")
    if args.word and not args.name:
        raise InvalidInput(f"no name given: hv skills {args.word} NAME")
    if (args.word == "new") != bool(args.batch):
        raise InvalidInput("a new skill needs a batch: hv skills new NAME --from BATCH")
    if args.word != "new" and (args.user or args.dry_run or args.description):
        raise InvalidInput("--user, --dry-run and --description work only with `hv skills new`.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.word == "new":
        made = new_skill(
            hv,
            args.name,
            args.batch,
            user=args.user,
            description=args.description,
            dry_run=args.dry_run,
        )
        return respond(args, made, lambda: _print_new(made))
    if args.word == "show":
        details = skill(hv, args.name)
        return respond(args, details, _lines(details))
    if args.names:
        names = skill_names()
        return respond(args, names, names)
    views = skills(hv)
    return respond(args, views, lambda: _list(views))


def _list(views: tuple[SkillView, ...]) -> None:
    good = [view for view in views if not view.problem]
    if sys.stdout.isatty() and columns_here() < WIDE:
        for view in good:
            how = f"{view.kind}, {record_line(view.record)}"
            print_lines([[(one_line(view.name), BOLD), (f"  {how}", DIM)]])
            print(wrapped(one_line(_about(view))))
    else:
        rows = [(view.name, view.kind, record_line(view.record), _about(view)) for view in good]
        table(HEAD, rows, widest=MAX_RECORD_LENGTH)
    for view in views:
        if view.problem:
            print(f"hv: {one_line(view.problem)}", file=sys.stderr)


def _about(view: SkillView) -> str:
    hidden = f" (hides {pluralize(len(view.hides), 'other')} of this name)" if view.hides else ""
    return view.description + hidden


def record_line(record: SkillRecord) -> str:
    """The record in a few words."""
    if not record.runs:
        return "never run"
    parts = [pluralize(record.runs, "run"), pluralize(record.tasks, "task")]
    if record.success is not None:
        parts.append(f"{100 * record.success:.0f} % done")
    if record.cost_micros:
        parts.append(cost_text(record.cost_micros, record.estimated))
    return ", ".join(parts)


# One of them


def _lines(details: SkillDetails) -> list[str]:
    view, body = details.view, details.body.strip()
    about = [("from", f"{view.kind}, {near_path(view.folder)}")]
    about += [("hides", near_path(folder)) for folder in view.hides]
    about.append(("record", _record(view.record)))
    if details.learned is not None:
        about.append(("learned", _learned(details.learned)))
    return [
        wrapped(one_line(f"{view.name}: {view.description}"), first=""),
        *_named(about),
        "",
        *_named(_fields(details)),
        *(["", paragraphs(body)] if body else []),
    ]


def _named(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """One line per pair, with the values aligned."""
    room = max((len(name) for name, _ in pairs), default=0) + 2
    return [
        wrapped(one_line(value), " " * room, f"{one_line(name) + ':':<{room}}")
        for name, value in pairs
    ]


def _record(record: SkillRecord) -> str:
    parts = [record_line(record)]
    if record.runs:
        parts.append(f"{duration(round(1000 * record.seconds))} in all")
        parts.append(f"last {clock(record.last_at)}")
    if record.tokens:
        parts.append(f"{record.tokens:,} tokens")
    return ", ".join(parts)


def _learned(learned: Learned) -> str:
    saved = learned.parallel_benefit
    return (
        f"parallel benefit {saved.mean:.2f} ({saved.low:.2f} to {saved.high:.2f}) "
        f"from {pluralize(learned.samples, 'sample')}; next time "
        f"{pluralize(learned.next.workers, 'worker')}: {learned.next.why}"
    )


def _fields(details: SkillDetails) -> list[tuple[str, str]]:
    return [
        (name, ", ".join(f"{key} {to_yaml(entry)}" for key, entry in value.items()))
        if isinstance(value, dict)
        else (name, to_yaml(value))
        for name, value in details.fields.items()
        if name not in ("name", "description")
    ]


# A new one


def _print_new(made: MadeSkill) -> None:
    if not made.written:
        for name, text in made.files.items():
            print(f"{one_line(near_path(os.path.join(made.folder, name)))}:")
            print(block(text))
        print("(dry run: nothing was written)")
    else:
        print(f"{one_line(near_path(made.folder))}: {', '.join(map(one_line, made.files))}")
    for note in made.notes:
        print(f"  {one_line(note)}")
    if made.written:
        print(f"  to run it: hv run {made.name} PATH")
