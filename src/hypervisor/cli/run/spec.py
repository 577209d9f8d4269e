"""What the words of `hv run` mean: a skill, how the batch is run, and what it is called."""

import argparse
import os
import shutil
import sys

from hypervisor.cli.run import agents
from hypervisor.cli.run.request import RunRequest
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.spec import RunSpec

COPY_MARK = ".copy-of"  # in a copy that --copy made: of what


def apply_skill(args: argparse.Namespace) -> None:
    """`hv run triage PATH` is a skill, which sets defaults; after a `--` the same is a command."""
    args.skill, args.skill_paths, args.paths_only, args.columns = None, [], False, None
    if args.copy is None and not args.late and (not args.command or "--" in args.words):
        return
    from hypervisor.cli.run import skills  # reading one takes modules that few runs need

    skill = skills.skill_of(args)
    if skill is None:
        return
    paths = skills.apply(args, skill)
    if args.copy is not None:
        if len(paths) != 1:
            raise InvalidInput(f"name one folder: hv run {skill.skill.name} PATH --copy DIR.")
        paths = [args.copy] if _copied(paths[0], args) else paths
    skills.set_items(args, skill, paths)
    skills.tell_origin(skill)
    args.skill, args.skill_paths = skill, paths


def _copied(path: str, args: argparse.Namespace) -> bool:
    """The copy is made once; later runs go on with it as it is. What is no copy of ours is
    not touched."""
    source, copy = os.path.realpath(path), os.path.realpath(args.copy)
    mark = os.path.join(args.copy, COPY_MARK)
    if not args.copy.strip() or os.path.commonpath((source, copy)) in (source, copy):
        raise InvalidInput("--copy needs a folder of its own, neither inside PATH nor around it.")
    if os.path.exists(args.copy):
        if _text_of(mark) != source:
            raise InvalidInput(
                f"{args.copy} already exists and is not a copy of {path}. Nothing was changed."
            )
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


def spec_of(request: RunRequest) -> RunSpec:
    cwd = os.path.abspath(request.cwd)
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {request.cwd}.")
    return RunSpec(
        cwd=cwd,
        command=request.command,
        function=request.fn,
        shell=request.shell,
        python=request.python,
        stdin=request.stdin,
        clean_env=request.clean_env,
        workers=request.workers,
        claim=request.claim,
        fail_fast=request.fail_fast,
        strategy=request.strategy,
        time=request.timeout,
        memory=request.memory,
        silence=request.silence,
        output=request.max_output,
        result=request.result,
        gate=request.chunks.gate,
        write_back=_write_back(request),
        propose=request.propose,
        skill=request.skill.skill.name if request.skill else "",
        **agents.spec_fields(request),
    )


def _write_back(request: RunRequest) -> str:
    """Who works on task files wants to see in them how far that is."""
    if request.chunks.per == "chunk":
        return "none"  # the item is a list, not a task file
    options = request.items
    folders = any(os.path.isdir(name) for name in options.items)
    usual = options.format == "tasks" or options.epic or (folders and options.format is None)
    return request.write_back or ("status" if usual else "none")


def name_for(spec: RunSpec, request: RunRequest) -> str:
    """The same command in the same folder is the same batch, so that it can be resumed; so is
    the same skill on the same path, as long as it runs the same."""
    if request.skill:
        paths = [os.path.abspath(path) for path in request.skill_paths]
        same = [*paths, *spec.command, spec.prompt]
        if not paths:
            same += [spec.cwd, *request.items.items]
        base = os.path.basename(paths[0]) if paths else ""
        safe = "".join(c if c.isalnum() else "-" for c in base)[:30]
        mark = _digest("\0".join(part for part in same if part))
        return "-".join(filter(None, (spec.skill, safe, mark)))
    if spec.agent:
        name, text = agents.batch_name(spec, request.agents.prompt)
    else:
        name = spec.function or os.path.basename(spec.command[0].split()[0])
        text = "\0".join((spec.cwd, name, *spec.command, str(spec.shell), spec.stdin))
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in name)[:40]
    return f"{safe}-{_digest(text)}"


def _digest(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
