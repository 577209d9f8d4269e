"""The escape sequences that programs print for a terminal."""

import re

SEQUENCE = re.compile(
    r"""
      \x1b \[ [0-?]* [ -/]* [@-~]                   # cursor, colors, modes
    | \x1b [\]PX^_] [^\x07\x1b]* (?: \x07 | \x1b\\ )  # titles, links, device strings
    | \x1b [ -/]* [0-~]                             # character sets, resets
    """,
    re.VERBOSE,
)
