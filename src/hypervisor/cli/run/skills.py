"""`hv run SKILL [PATH]`: what a skill says becomes the defaults of the options.

An option on the command line wins; of options that exclude each other, and of lists, so does
the one that was given there. What is then left is a `hv run` like any other.
"""

import argparse
import glob
import os
import shlex
import shutil
import sys
from typing import Any

from hypervisor.agents.routing import AUTO
from hypervisor.cli.output import near_path, one_line
from hypervisor.cli.run import agents
from hypervisor.cli.run.sources import MAGIC
from hypervisor.core.errors import InvalidInput
from hypervisor.skills.fields import FIELDS, FILES, NAME, PROGRAM
from hypervisor.skills.folders import BUILT_IN, FoundSkill, find_skill, nearest
from hypervisor.skills.skill import ANY, SkillRun, own_file

# Of each of these only one can be meant: whichever is given rules out what the skill says of
# them, and of what goes with them.
TOGETHER: dict[tuple[str, ...], tuple[str, ...]] = {
    ("chunk", "chunk_by", "chunk_size"): (),
    ("fail_fast", "keep_going"): (),
    ("reduce", "reduce_fn", "reduce_prompt"): ("reduce_agent",),
    ("then",): (),
    ("allow",): (),
    ("requires",): (),
    ("key",): (),
}
OF_AGENT = ("model", "allow", "fallback")  # another agent knows others
KEPT = ("store", "json")  # may stand before `run`, too


def skill_of(args: argparse.Namespace) -> FoundSkill | None:
    """The skill that the first word names; after a `--` the same words are a command."""
    found = None
    if args.command and "--" not in args.words:
        found = find_skill(args.command[0])
        if found is None:
            _refuse_misspelt(args.command[0])
    if found is None and args.late:
        raise InvalidInput(
            f"unrecognized arguments: {' '.join(args.late)}. `hv run --help` shows how."
        )
    if found is None and args.copy is not None:
        raise InvalidInput("--copy goes with a skill, as in `hv run triage PATH --copy DIR`.")
    return found


def apply(args: argparse.Namespace, found: FoundSkill) -> list[str]:
    """Make the words of a skill those of a plain run; gives the paths that it works on."""
    skill = found.skill
    paths: list[str] = [*args.command[1:], *args.late]
    judged = bool(args.agent and skill.run.function and skill.options.get("prompt"))
    if args.fn or (args.agent and not skill.run.agent and not judged):
        raise InvalidInput(
            f"the skill {skill.name} says what is run, {_what(skill.run)}: "
            f"{'--fn' if args.fn else '--agent'} does not go with it."
        )
    defaults = _defaults(found)
    if judged:
        defaults["fn"] = None  # the agent that was named works in place of the function
        for field in FIELDS.values():
            if field.goes_with == PROGRAM:
                defaults.pop(field.option, None)
    elif not skill.run.agent:
        defaults.pop("prompt", None)
    for name in _not_meant(args, found):
        defaults.pop(name, None)
    if args.agent and defaults.get("reduce_agent") == AUTO:
        del defaults["reduce_agent"]  # any agent: the one that was named
    for group, ruled_out in TOGETHER.items():
        if any(getattr(args, name, None) for name in group):
            for name in (*group, *ruled_out):
                defaults.pop(name, None)
    given = argparse.Namespace(**defaults, **{name: getattr(args, name) for name in KEPT})
    vars(args).update(vars(args.parser.parse_args(args.words, given)))
    args.command = _command(found, skill.run)
    args.paths_only = False
    return paths


def tell_origin(found: FoundSkill) -> None:
    """It runs code of that place, so whoever runs it shall know which."""
    if found.kind == BUILT_IN:
        return
    whose = "this project" if found.kind == "project" else "your own"
    hides = f", instead of {', '.join(found.hides)}" if found.hides else ""
    print(
        f"hv: skill {found.skill.name}: {whose}, {one_line(near_path(found.folder) + hides)}",
        file=sys.stderr,
    )


def _defaults(found: FoundSkill) -> dict[str, Any]:
    skill = found.skill
    options = dict(skill.options)
    for name in FILES:
        if name in options:
            options[name] = found.path(options[name])
    options.setdefault("type", skill.name)
    if skill.run.agent:
        options["agent"] = _agent(skill.run)
        options.setdefault("prompt", f"{skill.body.strip()}\n")
    options["fn"] = skill.run.function or None
    if skill.items.format:
        options["format"] = skill.items.format
    return options | _reduce(found)


def _reduce(found: FoundSkill) -> dict[str, Any]:
    last = found.skill.reduce
    if last is None:
        return {}
    if last.command:
        return {"reduce": shlex.join(_command(found, last))}
    if last.function:
        return {"reduce_fn": last.function}
    return {"reduce_prompt": found.path(last.prompt), "reduce_agent": _agent(last)}


def _not_meant(args: argparse.Namespace, found: FoundSkill) -> tuple[str, ...]:
    """The options of the skill's agent that make no sense for who works in its place."""
    run, last = found.skill.run, found.skill.reduce
    if run.agent:
        return OF_AGENT if args.agent and args.agent != _agent(run) else ()
    if last is None or not last.agent or args.agent:
        return ()
    if args.reduce or args.reduce_fn:
        return agents.FOR_REDUCE  # no agent at all
    return OF_AGENT if args.reduce_agent and args.reduce_agent != _agent(last) else ()


def _agent(ran: SkillRun) -> str:
    return AUTO if ran.agent == ANY else ran.agent


def _command(found: FoundSkill, ran: SkillRun) -> list[str]:
    if not ran.command:
        return []
    first, *rest = ran.command
    own = found.skill.script if ran is found.skill.run else own_file(ran.command)
    if own and not os.access(found.path(own), os.X_OK):
        raise InvalidInput(f"{found.path(own)} is no program: chmod +x makes it one.")
    return [found.path(own) if own else first, *rest]


def _what(ran: SkillRun) -> str:
    return {"function": "a function", "command": "a command", "agent": "an agent"}[ran.kind]


# Its items


def set_items(args: argparse.Namespace, found: FoundSkill, paths: list[str]) -> None:
    """What the paths mean to the skill, as --items and --item would have said it."""
    items, name = found.skill.items, found.skill.name
    if args.items or args.item:
        if paths:
            raise InvalidInput(f"name PATH or --items, not both: hv run {name} PATH.")
    elif items.file:
        args.items = [found.path(items.file)]
        args.columns = {"path": _existing(_one(name, paths or ["."]))}
    elif items.glob:
        _add_files(args, items.glob, paths or ["."])
    elif paths:
        args.items = [_one(name, paths)] if items.paths else paths
    elif items.format:
        raise InvalidInput(f"name one folder or file: hv run {name} PATH.")
    args.paths_only = items.paths and not (args.chunk or args.chunk_by or args.epic)


def _one(name: str, paths: list[str]) -> str:
    if len(paths) != 1:
        raise InvalidInput(f"name one folder: hv run {name} PATH.")
    return paths[0]


def _add_files(args: argparse.Namespace, pattern: str, paths: list[str]) -> None:
    """A folder stands for what fits the pattern in it, a file for itself."""
    patterns: list[str] = []
    files: list[str] = []
    for path in paths:
        if args.scratch and path != "-":
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
    """Each agent gets a copy of the run's folder: a path must mean the same in it."""
    near = os.path.relpath(os.path.realpath(path), os.path.realpath(cwd))
    if near.split(os.sep, 1)[0] == os.pardir:
        raise InvalidInput(
            f"{path} is not below {cwd}, of which each agent gets a copy: start it there."
        )
    return near


def _existing(path: str) -> str:
    if not os.path.lexists(path):
        raise InvalidInput(f"{path} cannot be read: No such file or directory.")
    return path


def _refuse_misspelt(word: str) -> None:
    """A word that is no skill may be a program; if it is neither, the nearest skill is meant."""
    if NAME.match(word) and shutil.which(word) is None and (near := nearest(word)):
        raise InvalidInput(f"there is no skill {word!r} and no such program.{near}")
