"""From the arguments of `hv run` to the skill, the spec and the name of the batch."""

import argparse
import os
import shutil

from hypervisor.cli.output import warn
from hypervisor.cli.run import agents
from hypervisor.cli.run.request import RunRequest
from hypervisor.cli.run.workspaces import workspace_of
from hypervisor.core.errors import InvalidInput
from hypervisor.resources.limits import Limits
from hypervisor.runs.spec import CommandSpec, FunctionSpec, RunSpec, WorkSpec, WriteBack

COPY_MARK = ".copy-of"  # file in a folder made by --copy, with the path of the original


def apply_skill(args: argparse.Namespace) -> None:
    """Apply the defaults of a skill (`hv run triage PATH`); words after `--` are a command."""
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
            raise InvalidInput(f"give one folder: hv run {skill.skill.name} PATH --copy FOLDER")
        paths = [args.copy] if _copied(paths[0], args) else paths
    skills.set_items(args, skill, paths)
    skills.tell_origin(skill)
    args.skill, args.skill_paths = skill, paths


def _copied(path: str, args: argparse.Namespace) -> bool:
    """Make the copy once; later runs reuse it. A folder that is not our copy is not touched."""
    source, copy = os.path.realpath(path), os.path.realpath(args.copy)
    mark = os.path.join(args.copy, COPY_MARK)
    if not args.copy.strip() or os.path.commonpath((source, copy)) in (source, copy):
        raise InvalidInput("--copy needs a folder that is neither inside PATH nor contains it.")
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
        raise InvalidInput(f"cannot copy {path} to {args.copy}: {error}.") from None
    if not args.json:
        warn(f"copied {path} to {args.copy}")
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
        raise InvalidInput(f"no such folder: {request.cwd}")
    workspace, git = workspace_of(request)
    return RunSpec(
        cwd=cwd,
        work=_work(request),
        workers=request.workers,
        claim=request.claim,
        fail_fast=request.fail_fast,
        retry_delay=request.retry_delay,
        strategy=request.strategy,
        limits=Limits(request.timeout, request.memory, request.silence, request.max_output),
        gate=request.chunks.gate,
        write_back=_write_back(request),
        propose=request.propose,
        skill=request.skill.skill.name if request.skill else "",
        workspace=workspace,
        git=git,
        on=request.tasks.on,
        per_host=request.per_host,
        pack=request.pack,
        on_cut=request.on_cut,
        sandbox=request.sandbox,
    )


def _work(request: RunRequest) -> WorkSpec:
    if request.agents.agent is not None:
        return agents.agent_spec(request, request.agents.agent)
    if request.fn:
        from hypervisor.runs.functions.virtual_env import active_python

        python = request.python or active_python(request.fn, os.environ)
        return FunctionSpec(request.fn, python, request.clean_env, request.result)
    return CommandSpec(
        request.command, request.shell, request.stdin, request.clean_env, request.result
    )


def _write_back(request: RunRequest) -> WriteBack:
    """By default, the status is written into task files."""
    if request.chunks.per == "chunk":
        return "none"  # the item is a list, not a task file
    options = request.items
    folders = any(os.path.isdir(name) for name in options.items)
    usual = options.format == "tasks" or options.epic or (folders and options.format is None)
    return request.write_back or ("status" if usual else "none")


def name_for(spec: RunSpec, request: RunRequest) -> str:
    """The same command in the same folder is the same batch, so that it can be resumed; so is
    the same skill on the same path, unless it was changed."""
    if request.skill:
        paths = [os.path.abspath(path) for path in request.skill_paths]
        same = [*paths, *request.command, spec.agent.prompt if spec.agent else ""]
        if not paths:
            same += [spec.cwd, *request.items.items]
        base = os.path.basename(paths[0]) if paths else ""
        safe = "".join(c if c.isalnum() else "-" for c in base)[:30]
        mark = _digest("\0".join(part for part in same if part))
        return "-".join(filter(None, (spec.skill, safe, mark)))
    if spec.agent:
        name, text = agents.batch_name(spec.cwd, spec.agent, request.agents.prompt)
    else:
        name = request.fn or os.path.basename(request.command[0].split()[0])
        text = "\0".join((spec.cwd, name, *request.command, str(request.shell), request.stdin))
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in name)[:40]
    return f"{safe}-{_digest(text)}"


def _digest(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
