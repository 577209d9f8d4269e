"""hv gc"""

import argparse

from hypervisor.cli.output import near_path, one_line, respond
from hypervisor.core.text import pluralize
from hypervisor.git.tidy import Freed, Tidied, gc
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text

EXAMPLE = "hv gc --dry-run"
SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would be deleted")


def run(hv: Context, args: argparse.Namespace) -> int:
    freed = gc(hv, args.dry_run)
    return respond(args, freed, "\n".join(_lines(freed, args.dry_run)))


def _lines(freed: Freed, dry_run: bool) -> list[str]:
    deleted = f"{pluralize(freed.outputs, 'output')} ({size_text(freed.bytes)})"
    kept = f"{pluralize(freed.kept, 'output')} ({size_text(freed.kept_bytes)}) kept"
    verb = "would be deleted" if dry_run else "deleted"
    lines = [f"{deleted} {verb}, {kept}", *_git_lines(freed.git, dry_run)]
    if freed.tasks or freed.batches:
        names = [*freed.batches[:SHOWN], *(["…"] if len(freed.batches) > SHOWN else [])]
        batches = f", with the batches {one_line(', '.join(names))}" if names else ""
        lines.append(f"{pluralize(freed.tasks, 'finished task')} {verb}{batches}")
    if freed.events:
        lines.append(f"{pluralize(freed.events, 'event')} {verb}")
    return [*lines, "dry run: nothing was changed"] if dry_run else lines


def _git_lines(tidied: Tidied, dry_run: bool) -> list[str]:
    removed = [place for place in tidied.workspaces if not place.why_kept]
    emptied = [place for place in tidied.trash if not place.why_kept]
    would = "would be " if dry_run else ""
    lines = []
    if removed:
        size = size_text(sum(place.bytes for place in removed))
        lines.append(f"{pluralize(len(removed), 'clone')} ({size}) {would}moved to the trash")
    counts = {
        "removed clone": len(emptied),
        "verification log": tidied.logs,
        "verification checkout": tidied.benches,
        "snapshot": tidied.refs,
        "unused ref": tidied.unused_refs,
        "cached verdict": tidied.verdicts,
    }
    if any(counts.values()):
        parts = ", ".join(pluralize(count, what) for what, count in counts.items() if count)
        lines.append(f"{parts} ({size_text(tidied.deleted_bytes)}) {would}deleted")
    for place in tidied.kept[:SHOWN]:
        name, reasons = near_path(place.path), "; ".join(place.why_kept)
        lines.append(f"kept: {one_line(f'{name} ({size_text(place.bytes)}): {reasons}')}")
    more = len(tidied.kept) - SHOWN
    return [*lines, f"kept: {more:,} more"] if more > 0 else lines
