"""The part of a report that tells what followed on the items: stages, and the reduce."""

from __future__ import annotations

import json

from hypervisor.domain.result import text_of
from hypervisor.faces.html.text import attribute, printed, say
from hypervisor.operations.overview import Overview, Reduced, Stage

MOST_LINES = 200


def stages(found: Overview | None) -> tuple[str, str]:
    """The table of the stages, and the answer; "" where there is none."""
    if found is None:
        return "", ""
    rows = [_row(f"stage {n}", each.what, _told(each)) for n, each in enumerate(found.stages, 1)]
    last = found.reduce
    if last is not None:
        why = f" ({last.reason})" if last.reason else ""
        rows.append(_row("reduce", last.what, last.state.replace("_", " ") + why))
    head = "<thead><tr><th>part</th><th>what ran</th><th>came of it</th></tr></thead>"
    table = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return table, _answer(last) if last is not None and last.state == "done" else ""


def whole_verdict(found: Overview) -> str:
    """What is to be said of a whole that has not succeeded, or not yet."""
    parts = (("did not succeed", found.unsuccessful), ("not finished", found.unfinished))
    said = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    kind = "bad" if found.unsuccessful else "open"
    return f'<p class="verdict {kind}">{say(said[:1].upper() + said[1:])}</p>'


def _row(name: str, what: str, told: str) -> str:
    return f"<tr><td>{name}</td><td><code>{say(what)}</code></td><td>{say(told)}</td></tr>"


def _told(each: Stage) -> str:
    left = {**each.states, "waiting": each.states.get("waiting", 0) - each.stuck}
    parts = [f"{count:,} {state.replace('_', ' ')}" for state, count in left.items() if count > 0]
    if each.stuck:
        parts.append(f"{each.stuck:,} not begun: what came before failed")
    return ", ".join(parts)


def _answer(last: Reduced) -> str:
    if last.result is None:
        lines = last.output.splitlines()
    else:
        told = last.result if isinstance(last.result, str) else text_of(last.result, "summary")
        lines = (told or json.dumps(last.result, ensure_ascii=False, indent=1)).splitlines()
    shown = "\n".join(printed(line) for line in lines[-MOST_LINES:])
    where = f'<p class="note"><code>hv logs {attribute(last.id)}</code> has all of it.</p>'
    return f"<pre>{shown}</pre>{where}" if shown else ""
