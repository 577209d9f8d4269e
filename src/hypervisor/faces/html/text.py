"""Words and numbers for a page. All text is hostile: it gets in here or not at all."""

from __future__ import annotations

import time
from html import escape

from hypervisor.domain.limits import size_text
from hypervisor.faces.cli.harmless import SEQUENCE
from hypervisor.faces.cli.output import one_line

__all__ = ["attribute", "clock", "data_block", "day", "moment", "printed", "size_text", "took"]


def attribute(text: str) -> str:
    """Text for an attribute or an SVG title: escaped, with nothing invisible in it."""
    return escape(one_line(text), quote=True)


def say(text: str) -> str:
    """Text for the page, which cannot change the direction of what stands around it."""
    return f"<bdi>{attribute(text)}</bdi>"


def printed(line: str) -> str:
    """A line that a program printed, without its colours."""
    return attribute(SEQUENCE.sub("", line).replace("\t", "    "))


def data_block(json_text: str) -> str:
    """JSON that can stand in a script element, whatever texts are in it."""
    for char in "<>&\u2028\u2029":
        json_text = json_text.replace(char, f"\\u{ord(char):04x}")
    return json_text


def took(ms: float) -> str:
    """`8 ms`, `0.46 s`, `12.3 s`, `4 min 10 s`, `2 h 5 min`."""
    if ms < 100:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def step(ms: int) -> str:
    """The edge of a duration, as short as can be."""
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) if ms else ""


def clock(ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ms / 1000))


def day(ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(ms / 1000))
