"""`hv run SKILL [PATH]`: the fields of a skill become the defaults of the options.

Options on the command line take precedence, also over the skill's other options of a group of
which only one can be used. The rest is a plain `hv run`.
"""

import argparse
import glob
import os
import shlex
import shutil
from typing import Any

from hypervisor.cli.output import near_path, one_line, warn
from hypervisor.cli.run import agents
from hypervisor.cli.run.sources import MAGIC
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.spec import AUTO
from hypervisor.skills.fields import ANY, FIELDS, FILES, NAME, PROGRAM
from hypervisor.skills.folders import BUILT_IN, FoundSkill, find_skill, nearest
from hypervisor.skills.skill import SkillRun, own_file

# Only one option of each group can be used: if one is given, the skill's defaults for the group
# are dropped, with those of the options that depend on it.
TOGETHER: dict[tuple[str, ...], tuple[str, ...]] = {
    ("chunk", "chunk_by", "chunk_size"): (),
    ("fail_fast", "keep_going"): (),
    ("reduce", "reduce_fn", "reduce_prompt"): ("reduce_agent",),
    ("then",): (),
    ("allow",): (),
    ("requires",): (),
    ("exclusive",): (),
}
OF_AGENT = ("model", "allow", "fallback")  # differ from agent to agent
KEPT = ("store", "json")  # may also be given before `run`
WORK_NAMES = {"function": "a function", "command": "a command", "agent": "an agent"}


def skill_of(args: argparse.Namespace) -> FoundSkill | None:
    """The skill named by the first word; after `--` the words are a command."""
    skill = None
    if args.command and "--" not in args.words:
        skill = find_skill(args.command[0])
        if skill is None:
            _refuse_misspelt(args.command[0])
    if skill is None and args.late:
        raise InvalidInput(f"unrecognized arguments: {' '.join(args.late)}. See `hv run --help`.")
    if skill is None and args.copy is not None:
        raise InvalidInput("--copy works only with a skill: hv run triage PATH --copy FOLDER")
    return skill


def apply(args: argparse.Namespace, found_skill: FoundSkill) -> list[str]:
    """Turn the arguments of a skill into those of a plain run; returns its paths."""
    skill = found_skill.skill
    paths: list[str] = [*args.command[1:], *args.late]
    judged = bool(args.agent and skill.run.function and skill.options.get("prompt"))
    if args.fn or (args.agent and not skill.run.agent and not judged):
        raise InvalidInput(
            f"the skill {skill.name} already runs {WORK_NAMES[skill.run.kind]}: "
            f"{'--fn' if args.fn else '--agent'} cannot be used with it."
        )
    defaults = _defaults(found_skill)
    if judged:
        defaults["fn"] = None  # the given agent replaces the function
        for field in FIELDS.values():
            if field.goes_with == PROGRAM:
                defaults.pop(field.option, None)
    elif not skill.run.agent:
        defaults.pop("prompt", None)
    for name in _inapplicable(args, found_skill):
        defaults.pop(name, None)
    if args.agent and defaults.get("reduce_agent") == AUTO:
        del defaults["reduce_agent"]  # any agent: use the given one
    for group, ruled_out in TOGETHER.items():
        if any(getattr(args, name, None) for name in group):
            for name in (*group, *ruled_out):
                defaults.pop(name, None)
    given = argparse.Namespace(**defaults, **{name: getattr(args, name) for name in KEPT})
    vars(args).update(vars(args.parser.parse_args(args.words, given)))
    args.command = _command(found_skill, skill.run)
    args.paths_only = False
    return paths


def tell_origin(found_skill: FoundSkill) -> None:
    """Print the folder of a skill that is not built in, as its code is run."""
    if found_skill.kind == BUILT_IN:
        return
    origin = "this project" if found_skill.kind == "project" else "your own"
    hides = f", instead of {', '.join(found_skill.hides)}" if found_skill.hides else ""
    folder = one_line(near_path(found_skill.folder) + hides)
    warn(f"hv: skill {found_skill.skill.name}: {origin}, {folder}")


def _defaults(found_skill: FoundSkill) -> dict[str, Any]:
    skill = found_skill.skill
    options = dict(skill.options)
    for name in FILES:
        if name in options:
            options[name] = found_skill.path(options[name])
    options.setdefault("type", skill.name)
    if skill.run.agent:
        options["agent"] = _agent(skill.run)
        options.setdefault("prompt", f"{skill.body.strip()}\n")
    options["fn"] = skill.run.function or None
    if skill.items.format:
        options["format"] = skill.items.format
    return options | _reduce(found_skill)


def _reduce(found_skill: FoundSkill) -> dict[str, Any]:
    last = found_skill.skill.reduce
    if last is None:
        return {}
    if last.command:
        return {"reduce": shlex.join(_command(found_skill, last))}
    if last.function:
        return {"reduce_fn": last.function}
    return {"reduce_prompt": found_skill.path(last.prompt), "reduce_agent": _agent(last)}


def _inapplicable(args: argparse.Namespace, found_skill: FoundSkill) -> tuple[str, ...]:
    """The options of the skill's agent that do not apply to the agent used instead."""
    run, last = found_skill.skill.run, found_skill.skill.reduce
    if run.agent:
        return OF_AGENT if args.agent and args.agent != _agent(run) else ()
    if last is None or not last.agent or args.agent:
        return ()
    if args.reduce or args.reduce_fn:
        return agents.FOR_REDUCE  # no agent at all
    return OF_AGENT if args.reduce_agent and args.reduce_agent != _agent(last) else ()


def _agent(ran: SkillRun) -> str:
    return AUTO if ran.agent == ANY else ran.agent


def _command(found_skill: FoundSkill, ran: SkillRun) -> list[str]:
    if not ran.command:
        return []
    first, *rest = ran.command
    own = found_skill.skill.script if ran is found_skill.skill.run else own_file(ran.command)
    if own and not os.access(found_skill.path(own), os.X_OK):
        raise InvalidInput(
            f"{found_skill.path(own)} is not executable; run: chmod +x {found_skill.path(own)}"
        )
    return [found_skill.path(own) if own else first, *rest]


# Its items


def set_items(args: argparse.Namespace, found_skill: FoundSkill, paths: list[str]) -> None:
    """The paths of a skill as --items and --item."""
    items, name = found_skill.skill.items, found_skill.skill.name
    if args.items or args.item:
        if paths:
            raise InvalidInput(f"give PATH or --items, not both: hv run {name} PATH")
    elif items.file:
        args.items = [found_skill.path(items.file)]
        args.columns = {"path": _existing(_one(name, paths or ["."]))}
    elif items.glob:
        _add_files(args, items.glob, paths or ["."])
    elif paths:
        args.items = [_one(name, paths)] if items.paths else paths
    elif items.format:
        raise InvalidInput(f"give one folder or file: hv run {name} PATH")
    args.paths_only = items.paths and not (args.chunk or args.chunk_by or args.epic)


def _one(name: str, paths: list[str]) -> str:
    if len(paths) != 1:
        raise InvalidInput(f"give one folder: hv run {name} PATH")
    return paths[0]


def _add_files(args: argparse.Namespace, pattern: str, paths: list[str]) -> None:
    """Add the files that match the pattern in each folder; a file is added as it is."""
    patterns: list[str] = []
    files: list[str] = []
    for path in paths:
        if (args.scratch or args.merge) and path != "-":
            path = _in_copy(path, args.cwd)
        if path == "-" or (MAGIC & set(path) and not os.path.lexists(path)):
            patterns.append(path)
        elif os.path.isdir(path):
            below = os.path.join(glob.escape(path), pattern)
            patterns.append(pattern if os.path.normpath(path) == "." else below)
        else:
            files.append(_existing(path))
    args.items, args.item = patterns or None, files or None


def _in_copy(path: str, cwd: str) -> str:
    """The path relative to the run's folder, of which each agent gets a copy."""
    near = os.path.relpath(os.path.realpath(path), os.path.realpath(cwd))
    if near.split(os.sep, 1)[0] == os.pardir:
        raise InvalidInput(
            f"{path} is outside {cwd}, of which each agent gets a copy; run the command in a "
            "folder above both."
        )
    return near


def _existing(path: str) -> str:
    if not os.path.lexists(path):
        raise InvalidInput(f"{path} cannot be read: No such file or directory.")
    return path


def _refuse_misspelt(word: str) -> None:
    """A word that is not a skill may be a program; if it is neither, suggest the nearest skill."""
    if NAME.match(word) and shutil.which(word) is None and (near := nearest(word)):
        raise InvalidInput(f"no skill or command named {word!r}.{near}")
