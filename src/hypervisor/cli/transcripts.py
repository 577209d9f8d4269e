"""An agent's transcript as text: its messages plain, tools and their answers set apart."""

import codecs
from collections.abc import Iterable, Iterator

from hypervisor.agents.transcript import (
    AGENT,
    ANSWER,
    END,
    ERROR,
    NOTE,
    TOOL,
    TranscriptLine,
    TranscriptRenderer,
)
from hypervisor.cli.output import BLUE, BOLD, DIM, RED, Line, fit, glyphs, one_line, render

MAX_LINE_LENGTH = 16 << 20  # bytes: a longer line is shown in pieces


def rendered(pieces: Iterable[bytes], stream: str) -> Iterator[list[TranscriptLine]]:
    """Render the pieces of a transcript, as soon as a line is complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    renderer, rest = TranscriptRenderer(stream), ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        if len(rest) > MAX_LINE_LENGTH:
            lines, rest = [*lines, rest], ""
        if shown := [entry for line in lines for entry in renderer.feed(line)]:
            yield shown
    if last := [*renderer.feed(rest), *renderer.flush()]:
        yield last


def lines(entry: TranscriptLine, columns: int | None) -> list[Line]:
    """One entry of a transcript; `columns`: tools and answers are cut to fit."""
    text = entry.text.strip()
    if entry.who == AGENT:
        return [[(one_line(line), "")] for line in text.splitlines()]
    flat = one_line(" ".join(text.split()))
    mark = glyphs()
    spans: dict[str, Line] = {
        TOOL: [(f"{mark.call} ", BLUE), (one_line(entry.name), BOLD), (f"  {flat}", "")],
        ANSWER: [(f"  {flat}", DIM)],
        ERROR: [(f"{mark.bad} ", RED), (flat, RED)],
        NOTE: [(flat, DIM)],
        END: [(f"{mark.rest * 2} {flat}", DIM)],
    }
    line = spans.get(entry.who, [(flat, "")])
    return [line if columns is None else fit(line, columns - 1)]


def text(entries: Iterable[TranscriptLine], columns: int | None, colours: bool) -> str:
    spans = (line for entry in entries for line in lines(entry, columns))
    return "".join(render(line, colours) + "\n" for line in spans)
