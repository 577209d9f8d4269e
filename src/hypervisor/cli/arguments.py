"""Arguments that commands share: values people type, and options of several commands."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.units import amount as read_amount
from hypervisor.core.units import money as read_money

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(text: str) -> int:
    """`90s`, `15m`, `2h`, `1d`, or plain seconds, in milliseconds."""
    number = text.strip().rstrip("mshd")
    unit = text.strip()[len(number) :] or "s"
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"invalid duration {text[:40]!r} (try 30s, 15m, 2h)"
        ) from None


def moment(text: str) -> int:
    """A time in ISO form (local unless it says otherwise), in milliseconds since 1970."""
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"invalid time {text[:40]!r} (try 2027-01-31T09:00)"
        ) from None


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
        help="the full text; @FILE reads it from a file, @- from stdin, @@ stands for one @",
    )
    parser.add_argument("--type", default=None if changing else "task", help="what kind of work")
    parser.add_argument(
        "--priority",
        choices=("critical", "high", "medium", "low"),
        default=None if changing else "medium",
        help="priority in the queue",
    )
    parser.add_argument("--branch", default=default, help="the context it belongs to")
    parser.add_argument("--assignee", default=default, help="only this worker may claim it")
    parser.add_argument(
        "--requires", action="append", metavar="CAPABILITY", help="what a worker must be able to do"
    )
    parser.add_argument("--after", action="append", metavar="TASK", help="wait until that is done")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--at", type=moment, metavar="TIME", help="not before this time")
    start.add_argument(
        "--in", dest="delay", type=duration, metavar="DURATION", help="not before so much later"
    )
    parser.add_argument(
        "--retries",
        type=int,
        metavar="N",
        default=None if changing else 0,
        help="how often a failed attempt is tried again",
    )
    parser.add_argument(
        "--data", type=json_text, metavar="JSON", help="anything else worth keeping"
    )


def body(text: str | None) -> str | None:
    """The text, or what the file named after an `@` holds; `@@` is a text that begins with one."""
    if text is None or not text.startswith("@"):
        return text
    return text[1:] if text.startswith("@@") else read_text(text[1:], "the body")


def start_time(args: argparse.Namespace, now: int) -> int | None:
    if args.delay is not None:
        return now + int(args.delay)
    return int(args.at) if args.at is not None else None


def checked(read: Callable[[str], int]) -> Callable[[str], int]:
    """A reader of the domain as argparse wants it: it complains in its own way."""

    def convert(text: str) -> int:
        try:
            return read(text)
        except InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None

    return convert


money = checked(read_money)
amount = checked(read_amount)


def add_words(parser: argparse.ArgumentParser, words: Mapping[str, str], name: str) -> None:
    """`words` are told with what each does; `name` is what one of the things is called."""
    parser.add_argument(
        "word",
        nargs="?",
        choices=tuple(words),
        metavar="|".join(words),
        help="; ".join(f"{word}: {does}" for word, does in words.items()),
    )
    parser.add_argument("name", nargs="?", metavar=name, help="which one")
    parser.add_argument("--names", action="store_true", help="only the names")
