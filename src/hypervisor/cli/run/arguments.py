"""What the words of `hv run` mean: a skill, how the batch is run, and what it is called."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

from hypervisor.cli.run import agents
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.spec import RunSpec

if TYPE_CHECKING:
    from hypervisor.skills.folders import FoundSkill

COPY_MARK = ".copy-of"  # in a copy that --copy made: of what


def skill_of(args: argparse.Namespace) -> FoundSkill | None:
    """`hv run triage PATH` is a skill; after a `--` the same words are a command."""
    args.skill_paths, args.paths_only, args.columns = [], False, None
    if args.copy is None and not args.late and (not args.command or "--" in args.words):
        return None
    from hypervisor.cli.run import skills  # reading one takes modules that few runs need

    found = skills.skill_of(args)
    if found is None:
        return None
    paths = skills.apply(args, found)
    if args.copy is not None:
        if len(paths) != 1:
            raise InvalidInput(f"name one folder: hv run {found.skill.name} PATH --copy DIR.")
        paths = [args.copy] if _copied(paths[0], args) else paths
    skills.set_items(args, found, paths)
    skills.tell_origin(found)
    args.skill_paths = paths
    return found


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
        cwd=cwd,
        command=tuple(args.command),
        function=args.fn,
        shell=args.shell,
        python=args.python,
        stdin=args.stdin,
        clean_env=args.clean_env,
        workers=args.workers,
        claim=args.claim,
        fail_fast=args.fail_fast,
        strategy=args.strategy,
        time=args.timeout,
        memory=args.memory,
        silence=args.silence,
        output=args.max_output,
        result=args.result,
        gate=args.gate,
        write_back=_write_back(args),
        propose=args.propose,
        skill=args.skill.skill.name if args.skill else "",
        **agents.fields(args),
    )


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
        return _skill_name(spec, args)
    if spec.agent:
        what, same = agents.called(spec, args)
    else:
        what = spec.function or os.path.basename(spec.command[0].split()[0])
        same = "\0".join((spec.cwd, what, *spec.command, str(spec.shell), spec.stdin))
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in what)[:40]
    return f"{safe}-{blake2b(same.encode('utf-8', 'surrogateescape'), digest_size=3).hexdigest()}"


def _skill_name(spec: RunSpec, args: argparse.Namespace) -> str:
    """The same skill on the same path is the same batch, as long as it runs the same."""
    from hashlib import blake2b

    paths = [os.path.abspath(path) for path in args.skill_paths]
    same = [*paths, *spec.command, spec.prompt]
    if not paths:
        same += [spec.cwd, *(args.items or ())]
    text = "\0".join(part for part in same if part)
    mark = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
    base = os.path.basename(paths[0]) if paths else ""
    safe = "".join(c if c.isalnum() else "-" for c in base)[:30]
    return "-".join(filter(None, (spec.skill, safe, mark)))
