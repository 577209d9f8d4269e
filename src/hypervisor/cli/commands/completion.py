"""hv completion"""

import argparse
import shlex

from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.integrations.install import current_place
from hypervisor.integrations.shell_completion import (
    MARK,
    SHELLS,
    install_completion,
    shell_of,
)
from hypervisor.queue.lifecycle import STATES, state_name

EXAMPLE = """hv completion --install
  hv completion zsh --install --dry-run
  eval "$(hv completion bash)\""""
WITH_TASKS = (
    *("show", "retry", "cancel", "update", "release", "receipt", "logs", "kill"),
    *("diff", "snapshots", "restore", "approve", "reject", "answer", "tell"),
    "attach",
)
WITH_BATCHES = (
    "queue",
    "status",
    "batches",
    "logs",
    "summary",
    "results",
    "report",
    "review",
    "pause",
    "resume",
    "retry",
    "cancel",
    "kill",
    "scale",
    "plan",
    "apply",
    "undo",
)
FILES = (
    "--items",
    "--store",
    "--cwd",
    "--python",
    "--prompt",
    "--reduce-prompt",
    "--schema",
    "--copy",
    "--out",
)
WITH_SKILLS = ("run", "skills")
STATE_WORDS = [state_name(state).replace(" ", "-") for state in STATES]
# Shells expand these words again, so only names that are harmless there are offered.
BATCHES = 'hv batches --names 2>/dev/null | grep -xE "[A-Za-z0-9._:-]+"'

SKILLS = 'hv skills --names 2>/dev/null | grep -xE "[a-z0-9_-]+"'
AGENTS = 'hv agents --names 2>/dev/null | grep -xE "[A-Za-z0-9._:-]+"'


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", nargs="?", choices=SHELLS, help="your shell (default with --install: $SHELL)"
    )
    parser.add_argument(
        "--install", action="store_true", help="write it to the file that the shell reads"
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="with --install: show the path, write nothing"
    )


def run(args: argparse.Namespace) -> int:
    if args.install:
        return _install(args)
    if args.dry_run:
        raise InvalidInput("--dry-run needs --install")
    if args.shell is None:
        raise InvalidInput("no shell given. Try `hv completion bash` or `hv completion --install`")
    script = completion_script(args.shell)
    return respond(args, {"shell": args.shell, "script": script}, script)


def completion_script(shell: str) -> str:
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _install(args: argparse.Namespace) -> int:
    place = current_place()
    shell = args.shell or shell_of(place.env)
    installed = install_completion(shell, completion_script(shell), place, args.dry_run)
    path = one_line(installed.path)
    if not installed.changed:
        lines = [f"{path} is up to date"]
    else:
        lines = [f"{'would write' if args.dry_run else 'wrote'} {path}"]
    lines += [one_line(installed.note), f"to undo: rm {one_line(shlex.quote(installed.path))}"]
    return respond(args, {**installed._asdict(), "dry_run": args.dry_run}, lines)


def options_of(name: str) -> dict[str, tuple[str, list[str]]]:
    """The long options of a command, each with its help and its possible values."""
    parser, _ = make_parser(COMMANDS[name])
    options = {}
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--") and action.help != argparse.SUPPRESS:
                values = STATE_WORDS if option == "--state" else list(action.choices or ())
                options[option] = (action.help or "", values)
    return options


def flags_of(name: str) -> set[str]:
    """The options of a command that take no value."""
    parser, _ = make_parser(COMMANDS[name])
    return {o for action in parser._actions if action.nargs == 0 for o in action.option_strings}


def words_of(name: str) -> list[str]:
    """The fixed arguments a command takes, such as `receipt verify`."""
    parser, _ = make_parser(COMMANDS[name])
    return [str(w) for a in parser._actions if not a.option_strings for w in a.choices or ()]


def _bash() -> str:
    cases: list[str] = []
    values: list[str] = []
    for name in COMMANDS:
        options = options_of(name)
        words = " ".join([*options, *words_of(name)])
        tasks = " $(hv ls --ids --limit 200 2>/dev/null)" if name in WITH_TASKS else ""
        batches = f" $({BATCHES})" if name in WITH_BATCHES else ""
        skills = f" $({SKILLS})" if name in WITH_SKILLS else ""
        cases.append(f'        {name}) words="{words}{tasks}{batches}{skills}" ;;')
        values += _values_of(name)
    return "\n".join(
        [
            MARK,
            "_hv() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" words=""',
            '    local last="${COMP_WORDS[COMP_CWORD-1]}"',
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word")); return',
            "    fi",
            '    case "${COMP_WORDS[1]} $last" in',
            *values,
            "    esac",
            '    case "$last" in',
            f'        {"|".join(FILES)}) COMPREPLY=($(compgen -f -- "$word")); return ;;',
            f'        --batch) words="$({BATCHES})" ;;',
            f'        --agent) words="auto $({AGENTS})" ;;',
            f'        --from) if [ "${{COMP_WORDS[1]}}" = skills ]; then words="$({BATCHES})"; '
            'else COMPREPLY=($(compgen -f -- "$word")); return; fi ;;',
            f'        --fallback|--reduce-agent|check) words="$({AGENTS})" ;;',
            "    esac",
            '    if [ -z "$words" ]; then case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac; fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -F _hv hv ./hv",
        ]
    )


def _values_of(name: str) -> list[str]:
    """The values of a command's options, as cases for bash."""
    return [
        f'        "{name} {option}") words="{" ".join(choices)}" ;;'
        for option, (_, choices) in options_of(name).items()
        if choices
    ]


def _zsh() -> str:
    """zsh can use bash's completion functions."""
    return "\n".join(
        [
            "#compdef hv",
            "autoload -U +X bashcompinit && bashcompinit",
            _bash(),
            # Loaded by the first completion, which must offer something as well.
            '[ "${funcstack[1]-}" != _hv ] || _bash_complete -F _hv',
        ]
    )


def _fish() -> str:
    lines = [MARK, "complete -c hv -f"]
    for name, command in COMMANDS.items():
        lines.append(
            f"complete -c hv -n __fish_use_subcommand -a {name} -d {_quoted(command.about)}"
        )
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        flags = flags_of(name)
        for option, (about, values) in options_of(name).items():
            given = "" if option in flags else _fish_values(name, option, values)
            lines.append(f"complete -c hv {seen} -l {option[2:]} -d {_quoted(about)}{given}")
        if words := " ".join(words_of(name)):
            first = f"'__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from "
            lines.append(f"complete -c hv -n {first}{words}' -a {_quoted(words)}")
        if name in WITH_TASKS:
            lines.append(f"complete -c hv {seen} -a '(hv ls --ids --limit 200 2>/dev/null)'")
        if name in WITH_BATCHES:
            lines.append(f"complete -c hv {seen} -a '({BATCHES})'")
        if name in WITH_SKILLS:
            lines.append(f"complete -c hv {seen} -a '({SKILLS})'")
    return "\n".join(lines)


def _fish_values(name: str, option: str, values: list[str]) -> str:
    """What may follow an option that takes a value; nothing else is offered there."""
    if option == "--batch" or (name, option) == ("skills", "--from"):
        return f" -x -a '({BATCHES})'"
    if option in ("--agent", "--fallback", "--reduce-agent"):
        return f" -x -a '({AGENTS})'"
    if option in (*FILES, "--from"):
        return " -r -F"
    return f" -x -a {_quoted(' '.join(values))}" if values else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
