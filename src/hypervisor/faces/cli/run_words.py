"""What the words of `hv run` mean: a skill, how the batch is run, and what it is called."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.run import RunSpec
from hypervisor.faces.cli import run_agents
from hypervisor.operations.skills import SKILLS, Skill

COPY_MARK = ".copy-of"  # in a copy that --copy made: of what


def skill_of(args: argparse.Namespace) -> Skill | None:
    """`hv run triage PATH` is a skill; after a `--` the same words are a command."""
    if not args.command or "--" in args.words or args.command[0] not in SKILLS:
        if args.copy is not None:
            raise InvalidInput("--copy goes with a skill, as in `hv run triage PATH --copy DIR`.")
        return None
    skill = SKILLS[args.command[0]]
    if len(args.command) != 2 or args.items or args.fn:
        raise InvalidInput(f"name one folder: hv run {skill.name} PATH.")
    path = args.command[1]
    if args.copy is not None:
        path = args.copy if _copied(path, args) else path
    args.command, args.fn = [], skill.function
    args.items, args.format = [path], args.format or skill.format
    args.paths_only = not (args.chunk or args.chunk_by or args.epic)
    args.type = skill.type if args.type == "run" else args.type
    args.write_back = args.write_back or skill.write_back
    return skill


def _copied(path: str, args: argparse.Namespace) -> bool:
    """The copy is made once; later runs go on with it as it is. What is no copy of ours is
    not touched."""
    source, copy = os.path.realpath(path), os.path.realpath(args.copy)
    mark = os.path.join(args.copy, COPY_MARK)
    if not args.copy.strip() or os.path.commonpath((source, copy)) in (source, copy):
        raise InvalidInput("--copy needs a folder of its own, neither inside PATH nor around it.")
    if os.path.exists(args.copy):
        if _text_of(mark) != source:
            raise InvalidInput(f"{args.copy} is there and no copy of {path}. Nothing was changed.")
        return True
    if args.dry_run:
        return False
    try:
        shutil.copytree(path, args.copy, symlinks=True)
        with open(mark, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(source)
    except (OSError, shutil.Error) as error:
        raise InvalidInput(f"{path} could not be copied to {args.copy}: {error}.") from None
    if not args.json:
        print(f"copied {path} to {args.copy}", file=sys.stderr)
    return True


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def spec_of(args: argparse.Namespace) -> RunSpec:
    cwd = os.path.abspath(args.cwd)
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {args.cwd}.")
    return RunSpec(
        cwd=cwd, command=tuple(args.command), function=args.fn, shell=args.shell,
        python=args.python, stdin=args.stdin, clean_env=args.clean_env, workers=args.workers,
        claim=args.claim, fail_fast=args.fail_fast, strategy=args.strategy, time=args.timeout,
        memory=args.memory, silence=args.silence, output=args.max_output, result=args.result,
        gate=args.gate, write_back=_write_back(args),
        propose=args.propose, **run_agents.fields(args),
    )  # fmt: skip


def _write_back(args: argparse.Namespace) -> str:
    """Who works on task files wants to see in them how far that is."""
    if args.per == "chunk":
        return "none"  # the item is a list, not a task file
    folders = any(os.path.isdir(name) for name in args.items or ())
    usual = args.format == "tasks" or args.epic or (folders and args.format is None)
    return args.write_back or ("status" if usual else "none")


def name_for(spec: RunSpec, args: argparse.Namespace) -> str:
    """The same command in the same folder is the same batch, so that it can be resumed."""
    from hashlib import blake2b

    if args.skill:
        path = os.path.abspath(args.items[0])
        mark = blake2b(path.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
        safe = "".join(c if c.isalnum() else "-" for c in os.path.basename(path))[:30]
        return f"{args.skill.name}-{safe}-{mark}"
    if spec.agent:
        what, same = run_agents.called(spec, args)
    else:
        what = spec.function or os.path.basename(spec.command[0].split()[0])
        same = "\0".join((spec.cwd, what, *spec.command, str(spec.shell), spec.stdin))
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in what)[:40]
    return f"{safe}-{blake2b(same.encode('utf-8', 'surrogateescape'), digest_size=3).hexdigest()}"
