"""Arguments that commands share: values people type, and options of several commands."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hypervisor.core import times
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import amount as read_amount
from hypervisor.core.text import money as read_money

Parser = argparse.ArgumentParser | argparse._ArgumentGroup
Value = TypeVar("Value")
LAST_PORT = 65_535


def json_text(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not valid JSON ({error})") from None


def read_text(path: str, what: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        if path == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                raw = file.read()
        return raw.decode()
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error.strerror}. Nothing was changed."
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} from {path} is not valid UTF-8. Nothing was changed.") from None


def add_task_fields(parser: argparse.ArgumentParser, changing: bool) -> None:
    """Options that `add` and `update` share; unset ones stay None when changing."""
    default = None if changing else ""
    parser.add_argument(
        "--body",
        metavar="TEXT",
        help="full text; @FILE reads it from a file, @- from stdin; @@ is a literal @",
    )
    parser.add_argument("--type", default=None if changing else "task", help="type of the task")
    parser.add_argument(
        "--priority",
        choices=("critical", "high", "medium", "low"),
        default=None if changing else "medium",
        help="priority in the queue",
    )
    parser.add_argument("--branch", default=default, help="branch the task belongs to")
    parser.add_argument("--assignee", default=default, help="only this worker may claim it")
    parser.add_argument(
        "--requires", action="append", metavar="CAPABILITY", help="capability a worker must have"
    )
    parser.add_argument(
        "--after", action="append", metavar="TASK", help="wait until this task is done"
    )
    add_start(parser)
    parser.add_argument(
        "--retries",
        type=int,
        metavar="N",
        default=None if changing else 0,
        help="number of retries after a failure",
    )
    parser.add_argument(
        "--data", type=json_text, metavar="JSON", help="additional data, stored with the task"
    )


def add_start(parser: Parser) -> None:
    """The options for the start time."""
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--at",
        type=time_text,
        metavar="TIME",
        help="start no earlier than this, e.g. 17:00 or 2027-01-31T09:00",
    )
    start.add_argument(
        "--in",
        dest="delay",
        type=duration,
        metavar="DURATION",
        help="start after this delay, e.g. 90s or 2h",
    )


def add_retry_delay(parser: Parser) -> None:
    parser.add_argument(
        "--retry-delay",
        type=duration,
        metavar="DURATION",
        help="delay before the first retry, doubled for each further one (default 10s)",
    )


def body(text: str | None) -> str | None:
    """The text, or the content of the file after an `@`; `@@` is a literal `@`."""
    if text is None or not text.startswith("@"):
        return text
    return text[1:] if text.startswith("@@") else read_text(text[1:], "the body")


def start_time(at: str | None, delay: int | None, now: int) -> int | None:
    """What `--at` or `--in` mean at this time."""
    if delay is not None:
        return now + delay
    return times.moment(at, now) if at is not None else None


def checked(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Turn the InvalidInput of a parsing function into the error that argparse expects."""

    def convert(text: str) -> Value:
        try:
            return read(text)
        except InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None

    return convert


money = checked(read_money)
amount = checked(read_amount)
duration = checked(times.duration)


@checked
def time_text(text: str) -> str:
    """A time for `times.moment`, checked now and evaluated once the current time is known."""
    times.moment(text, now=0)
    return text


class Word(argparse.Action):
    """A subcommand. The first one is also what happens without any: then `word` is None."""

    def __call__(self, _: object, namespace: Any, value: Any, option: str | None = None) -> None:
        namespace.word = value if value != next(iter(self.choices or ())) else None


def synonym(**names: str) -> Callable[[str], str]:
    """The type of an argument whose values have other names, such as `ls` for `list`."""
    return lambda text: names.get(text, text)


def add_word(
    parser: argparse.ArgumentParser, words: Mapping[str, str], default: str = "list"
) -> None:
    """Add subcommands, `words` with their descriptions, after the `default` one."""
    parser.add_argument(
        "word",
        nargs="?",
        action=Word,
        type=synonym(ls=default, list=default),
        choices=(default, *words),
        metavar="|".join((default, *words)),
        help="; ".join(f"{word}: {does}" for word, does in words.items()),
    )


def add_words(
    parser: argparse.ArgumentParser, words: Mapping[str, str], name: str, what: str
) -> None:
    """Add subcommands, `words` with their descriptions; `name`: metavar of the second argument."""
    add_word(parser, words)
    parser.add_argument("name", nargs="?", metavar=name, help=what)
    parser.add_argument("--names", action="store_true", help="print only the names")


def port_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"invalid port {text[:40]!r} (use 0 to {LAST_PORT})")
    return int(text)
