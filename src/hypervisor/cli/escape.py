"""The output of a program, made safe for a terminal.

Lines, tabs and colors stay. Sequences that move the cursor, change the terminal or make it
answer are removed, even if they arrive in pieces.
"""

import codecs
import re

from hypervisor.core.escape_sequences import SEQUENCE
from hypervisor.core.text import one_line

MAX_SEQUENCE_LENGTH = 4_096  # a longer escape sequence is not one
COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
BEGUN = re.compile(r"\x1b (?: \[ [0-?]*[ -/]* | [\]PX^_][^\x07\x1b]*\x1b? | [ -/]* )? \Z", re.X)
RESET = "\033[0m"


class EscapeFilter:
    """Feed it bytes; it returns text that is safe to print to a terminal."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self.coloured = False

    def feed(self, data: bytes, last: bool = False) -> str:
        text = self._rest + self._decoder.decode(data, last)
        self._rest = ""
        if not last:
            cut = self._unfinished(text)
            text, self._rest = text[:cut], text[cut:]
        parts = []
        at = 0
        for match in SEQUENCE.finditer(text):
            parts.append(_cleaned(text[at : match.start()]))
            if self._colours and COLOUR.fullmatch(match.group()):
                parts.append(match.group())
                self.coloured = True
            at = match.end()
        parts.append(_cleaned(text[at:]))
        return "".join(parts)

    def _unfinished(self, text: str) -> int:
        """Where an unfinished sequence, or a line break of two characters, begins."""
        if text.endswith("\r"):
            return len(text) - 1
        begun = BEGUN.search(text, max(len(text) - MAX_SEQUENCE_LENGTH, 0))
        return begun.start() if begun else len(text)


def _cleaned(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isprintable():
        return text
    kept = "".join(c for c in text if c in "\n\t" or not ("\0" <= c < " " or "\x7f" <= c < "\xa0"))
    return re.sub(r"[^\n\t]+", lambda part: one_line(part.group()), kept)
