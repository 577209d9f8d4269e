"""hv completion"""

import argparse

from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.cli.output import respond
from hypervisor.queue.lifecycle import STATES

EXAMPLE = """eval "$(hv completion bash)"                              # in ~/.bashrc
  hv completion zsh > "${fpath[1]}/_hv"                       # once
  hv completion fish > ~/.config/fish/completions/hv.fish     # once"""
WITH_TASKS = ("show", "retry", "cancel", "update", "release", "receipt", "logs", "kill")
WITH_BATCHES = ("status", "summary", "pause", "resume", "scale")
WITH_SKILLS = ("run", "skills")
# Shells expand these words once more: only names that are harmless there are offered.
BATCHES = 'hv stats --names 2>/dev/null | grep -xE "[A-Za-z0-9._:-]+"'

SKILLS = 'hv skills --names 2>/dev/null | grep -xE "[a-z0-9_-]+"'
AGENTS = 'hv agents --names 2>/dev/null | grep -xE "[A-Za-z0-9._:-]+"'


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell you use")


def run(args: argparse.Namespace) -> int:
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]()
    return respond(args, {"shell": args.shell, "script": script}, script)


def options_of(name: str) -> dict[str, tuple[str, list[str]]]:
    """The long options of a command, each with its help and its possible values."""
    parser, _ = make_parser(COMMANDS[name])
    found = {}
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--"):
                values = list(STATES) if option == "--state" else list(action.choices or ())
                found[option] = (action.help or "", values)
    return found


def words_of(name: str) -> list[str]:
    """The fixed words a command takes, such as `receipt verify`."""
    parser, _ = make_parser(COMMANDS[name])
    return [str(w) for a in parser._actions if not a.option_strings for w in a.choices or ()]


def _bash() -> str:
    cases, values = [], {}
    for name in COMMANDS:
        options = options_of(name)
        words = " ".join([*options, *words_of(name)])
        tasks = " $(hv ls --ids --limit 200 2>/dev/null)" if name in WITH_TASKS else ""
        batches = f" $({BATCHES})" if name in WITH_BATCHES else ""
        skills = f" $({SKILLS})" if name in WITH_SKILLS else ""
        cases.append(f'        {name}) words="{words}{tasks}{batches}{skills}" ;;')
        values.update({option: given for option, (_, given) in options.items() if given})
    given = [f'        {option}) words="{" ".join(v)}" ;;' for option, v in values.items()]
    return "\n".join(
        [
            "_hv() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" words=""',
            '    local last="${COMP_WORDS[COMP_CWORD-1]}"',
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word")); return',
            "    fi",
            '    case "$last" in',
            *given,
            "        --items|--store|--cwd|--python|--prompt|--reduce-prompt|--schema|--copy"
            '|--out) COMPREPLY=($(compgen -f -- "$word")); return ;;',
            f'        --batch) [ "${{COMP_WORDS[1]}}" = run ] || words="$({BATCHES})" ;;',
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


def _zsh() -> str:
    """zsh can use bash's completion functions."""
    return "\n".join(["#compdef hv", "autoload -U +X bashcompinit && bashcompinit", _bash()])


def _fish() -> str:
    lines = ["complete -c hv -f"]
    for name, command in COMMANDS.items():
        lines.append(
            f"complete -c hv -n __fish_use_subcommand -a {name} -d {_quoted(command.summary)}"
        )
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for option, (about, values) in options_of(name).items():
            given = f" -x -a {_quoted(' '.join(values))}" if values else ""
            if option in ("--agent", "--fallback", "--reduce-agent"):
                given = f" -x -a '({AGENTS})'"
            lines.append(f"complete -c hv {seen} -l {option[2:]} -d {_quoted(about)}{given}")
        if words_of(name):
            lines.append(f"complete -c hv {seen} -a {_quoted(' '.join(words_of(name)))}")
        if name in WITH_TASKS:
            lines.append(f"complete -c hv {seen} -a '(hv ls --ids --limit 200 2>/dev/null)'")
        if name in WITH_BATCHES:
            lines.append(f"complete -c hv {seen} -a '({BATCHES})'")
        if name in WITH_SKILLS:
            lines.append(f"complete -c hv {seen} -a '({SKILLS})'")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
