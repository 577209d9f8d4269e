"""The parser of a command: help on one screen, errors in one line with a suggestion."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import closest

MAX_PROBLEM_LENGTH = 500
MAX_WIDTH = 110  # longer lines are hard to read


class Parser(argparse.ArgumentParser):
    """`common` names the options that `--help` shows, if not all; `renamed` maps old options to
    new ones: the old ones work, with a hint."""

    common: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = {}
    shows_all = False

    def __init__(self, prog: str, description: str, example: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"examples:\n  {example}",
            formatter_class=Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._positionals.title = "arguments"
        self.general = self.add_argument_group("general options")
        self.general.add_argument("-h", "--help", action="help", help="show this help and exit")

    def show_only(self, common: Iterable[str]) -> None:
        """Keep the help short; `--help-all` shows all options."""
        self.common = frozenset(common) | {"help", "help_all", "store", "json"}
        self.general.add_argument(
            "--help-all", action=HelpAll, nargs=0, help="show all options and exit"
        )

    def error(self, message: str) -> NoReturn:
        stop = "" if message.endswith("?") else "."
        raise InvalidInput(f"{message[:MAX_PROBLEM_LENGTH]}{stop} See `{self.prog} --help`.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Positional arguments after options are passed to commands that accept them (`late`)."""
        words = self._with_new_names(args)
        if unknown := [option for option in self._options_in(words) if not self._action(option)]:
            self._refuse(unknown)
        parsed, rest = self.parse_known_args(words, namespace)
        if rest and (not hasattr(parsed, "late") or any(word.startswith("-") for word in rest)):
            self._refuse(rest)
        if rest:
            parsed.late = tuple(rest)
        return parsed

    def format_help(self) -> str:
        formatter = Formatter(f"{self.prog} [options]")
        needed = [a for a in self._actions if a.required or not a.option_strings]
        formatter.add_usage(self.usage, needed, ())
        formatter.add_text(self.description)
        groups = [group for group in self._action_groups if group is not self.general]
        for group in (*groups, self.general):
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(filter(self._is_shown, group._group_actions))
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _is_shown(self, action: argparse.Action) -> bool:
        if self.shows_all or not self.common or not action.option_strings:
            return True
        return action.dest in self.common

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        problem = f"invalid choice: {value!r} (choose from {', '.join(choices)})"
        named = action if action.option_strings else None  # an argument's name says nothing
        raise argparse.ArgumentError(named, problem + did_you_mean(str(value), choices))

    def _action(self, option: str) -> argparse.Action | None:
        return self._option_string_actions.get(option.partition("=")[0])

    def _options_in(self, words: Iterable[str]) -> Iterator[str]:
        """The long options before a command; argparse reads a word with a space as a value."""
        for word in words:
            if word == "--":
                return
            if word.startswith("--") and " " not in word:
                yield word
                action = self._action(word)
                if action is not None and action.nargs == argparse.REMAINDER:
                    return

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        option = next((word for word in words if word.startswith("--")), "").partition("=")[0]
        near = did_you_mean(option, self._option_string_actions)
        self.error(f"unrecognized arguments: {' '.join(words)}{near}")

    def _with_new_names(self, words: Sequence[str]) -> list[str]:
        result = list(words)
        for option in self._options_in(words):
            name, equals, value = option.partition("=")
            if name in self.renamed:
                hint_new_name(f"{self.prog} {name}", self.renamed[name])
                result[result.index(option)] = f"{self.renamed[name]}{equals}{value}"
        return result


class HelpAll(argparse.Action):
    """Prints the help with every option."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.shows_all = True
        parser.print_help()
        parser.exit()


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the summary, not the example; gets the terminal's width without loading shutil."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_width(), max_help_position=26)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-j, --workers N`, not `-j N, --workers N`."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return wrapped(text, width)


hinted: set[str] = set()  # with a skill, arguments are parsed twice


def hint_new_name(old: str, new: str) -> None:
    if old not in hinted:
        hinted.add(old)
        print(f"hv: `{old}` is now called {new}", file=sys.stderr)


def did_you_mean(word: str, candidates: Iterable[str], show: Callable[[str], str] = str) -> str:
    similar = closest(word, candidates)
    return f". Did you mean {show(similar)}?" if similar else ""


def terminal_width() -> int:
    try:
        return min(max(os.get_terminal_size(1).columns - 2, 40), MAX_WIDTH)
    except OSError:
        return 98


def wrapped(line: str, width: int, indent: str = "") -> str:
    """The line, broken between words."""
    from textwrap import fill

    return fill(line, width, subsequent_indent=indent)
