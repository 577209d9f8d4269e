"""What the commands have in common that list things, and with a word do more with one of them."""

import argparse
from collections.abc import Mapping, Sequence

from hypervisor.cli.output import print_json


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


def print_names(names: Sequence[str], as_json: bool) -> None:
    print_json(names) if as_json else print("\n".join(names))
