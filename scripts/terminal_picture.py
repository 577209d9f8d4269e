"""Turns a terminal's screen into an SVG picture for the documentation.

tmux capture-pane -p -e | .venv/bin/python scripts/terminal_picture.py docs/images/live-view.svg
"""

from __future__ import annotations

import argparse
import re
import sys
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

# Rich's own frame loads a font from the network; the reader's monospaced font will do.
FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def picture(screen: str, title: str, width: int) -> str:
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")))
    return console.export_svg(title=title, code_format=FONT_FACE.sub("", CONSOLE_SVG_FORMAT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--title", default="hv")
    parser.add_argument("--width", type=int, default=100)
    options = parser.parse_args()
    svg = picture(sys.stdin.read(), options.title, options.width)
    options.file.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
