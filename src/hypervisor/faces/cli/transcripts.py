"""An agent's transcript as lines for people: its words plain, tools and answers set apart."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from hypervisor.domain.agents.telling import AGENT, ANSWER, END, ERROR, NOTE, TOOL, Said, Teller
from hypervisor.faces.cli.output import one_line
from hypervisor.faces.cli.picture import BLUE, BOLD, DIM, RED, Span, fit, glyphs, render

LONGEST_LINE = 16 << 20  # bytes: what never ends is told in pieces


def told(pieces: Iterable[bytes], stream: str) -> Iterator[list[Said]]:
    """What the pieces of a transcript say, as soon as a line is whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    teller, rest = Teller(stream), ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        if found := [said for line in lines for said in teller.tell(line)]:
            yield found
    if last := [*teller.tell(rest), *teller.rest()]:
        yield last


def lines(said: Said, columns: int | None) -> list[list[Span]]:
    """One thing that was said; `columns`: tools and answers are cut to fit."""
    text = said.text.strip()
    if said.who == AGENT:
        return [[(one_line(line), "")] for line in text.splitlines()]
    flat = one_line(" ".join(text.split()))
    mark = glyphs()
    spans: dict[str, list[Span]] = {
        TOOL: [(f"{mark.call} ", BLUE), (one_line(said.name), BOLD), (f"  {flat}", "")],
        ANSWER: [(f"  {flat}", DIM)],
        ERROR: [(f"{mark.bad} ", RED), (flat, RED)],
        NOTE: [(flat, DIM)],
        END: [(f"{mark.rest * 2} {flat}", DIM)],
    }
    line = spans.get(said.who, [(flat, "")])
    return [line if columns is None else fit(line, columns - 1)]


def text(found: Iterable[Said], columns: int | None, colours: bool) -> str:
    return "".join(render(line, colours) + "\n" for said in found for line in lines(said, columns))
