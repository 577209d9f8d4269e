"""hv install"""

import argparse
from collections.abc import Callable

from hypervisor.cli.commands.apply import confirmed, prepare
from hypervisor.cli.output import one_line, print_json
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.integrations.clients import CLIENTS, PROJECT, USER, Place, Scope
from hypervisor.integrations.install import (
    Planned,
    carry_out,
    current_place,
    difference,
    plan_install,
)

EXAMPLE = """hv install claude
  hv install codex --project --dry-run
  hv install gemini --yes"""
Plan = Callable[[str, Scope, Place], Planned]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "client", choices=CLIENTS, metavar="CLIENT", help=f"one of {', '.join(CLIENTS)}"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--user",
        dest="scope",
        action="store_const",
        const=USER,
        default=USER,
        help="for you, in every project (default)",
    )
    where.add_argument(
        "--project",
        dest="scope",
        action="store_const",
        const=PROJECT,
        help="for everyone who works on the project in this folder",
    )
    parser.add_argument("--yes", action="store_true", help="change the files without asking")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="show the changes without making them"
    )


def run(args: argparse.Namespace) -> int:
    return perform(args, plan_install, removing=False)


def perform(args: argparse.Namespace, plan: Plan, removing: bool) -> int:
    """Show what would be changed, ask, change it."""
    prepare(args)
    place = current_place()
    planned = plan(args.client, args.scope, place)
    if not args.json:
        _show(planned)
    wanted = bool(planned.changes) and not args.dry_run
    if wanted and not args.yes and not confirmed("Change these files?"):
        print("Nothing was changed.")
        return EXIT_OK
    if wanted:
        carry_out(planned, place, removing)
    _report(planned, args, removing, wanted, place)
    return EXIT_UNSUCCESSFUL if removing and planned.notes else EXIT_OK


def _show(planned: Planned) -> None:
    for change in planned.changes:
        print("\n".join(one_line(line) for line in difference(change)))
    for note in planned.notes:
        print(one_line(note))


def _report(
    planned: Planned, args: argparse.Namespace, removing: bool, done: bool, place: Place
) -> None:
    paths = [change.path for change in planned.changes]
    if args.json:
        names = {"client": planned.client, "scope": planned.scope}
        print_json({**names, "files": paths, "changed": done, "notes": planned.notes})
        return
    title = CLIENTS[planned.client].title
    if args.dry_run and paths:
        print("(dry run: nothing was changed)")
    elif not paths:
        print(f"nothing to {'remove' if removing else 'change'} for {title}")
    elif removing and planned.notes:
        print(f"removed the other files that Hypervisor wrote for {title}; restart {title}")
    elif removing:
        print(f"removed Hypervisor from {title}; restart {title}")
    else:
        print(f"added Hypervisor to {title}; restart {title}")
        print(f"to undo: hv uninstall {planned.client}; backups are in {one_line(place.state)}")
