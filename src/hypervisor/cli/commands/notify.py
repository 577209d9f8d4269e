"""hv notify"""

from __future__ import annotations

import argparse
import sys

from hypervisor.cli.output import clock, one_line, print_json, table
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import counted
from hypervisor.notifications.notice import MOST_TRIES, WORDS
from hypervisor.notifications.notify import (
    RuleStatus,
    add_rule,
    dead_letters,
    drop_notices,
    remove_rule,
    retry_notices,
    rules,
    send_notices,
    try_rule,
)
from hypervisor.queue.context import Context

EXAMPLE = """hv notify add bell --on failed,finished --run notify-send Hypervisor 'come and look'
  printf %s "$CHAT_URL" | hv notify add chat --on checkpoint,budget --batch review --url
  hv notify test chat
  hv notify failed
  hv notify retry chat"""
ACTIONS = ("add", "ls", "rm", "test", "send", "failed", "retry", "drop")
NEEDS_NAME = ("add", "rm", "test")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="add, list, remove or try a rule; deliver what is due; list, retry or drop dead "
        "letters",
    )
    parser.add_argument("name", nargs="?", metavar="RULE", help="the rule's name")
    parser.add_argument(
        "--on", metavar="EVENTS", help=f"add: of which events, with commas: {', '.join(WORDS)}"
    )
    parser.add_argument("--batch", metavar="BATCH", help="add: only of this batch")
    parser.add_argument("--type", default="", metavar="TYPE", help="add: only tasks of this type")
    parser.add_argument(
        "--url",
        action="store_true",
        help="add: to a URL (a webhook, or what apprise knows), read from standard input or asked "
        "for: it may hold a secret",
    )
    parser.add_argument(
        "--run",
        dest="command",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="COMMAND",
        help="add: to a command, the rest of the line, started without a shell; the event is on "
        "its standard input as JSON and in HV_EVENT… variables",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=MOST_TRIES,
        metavar="N",
        help=f"add: a dead letter after so many (default {MOST_TRIES})",
    )


def prepare(args: argparse.Namespace) -> None:
    if args.name is None and args.action in NEEDS_NAME:
        raise InvalidInput(f"`hv notify {args.action}` needs the name of a rule.")
    if args.action != "add" and (args.command or args.on or args.batch or args.url or args.type):
        raise InvalidInput("--on, --batch, --type, --url and --run are for `hv notify add`.")
    args.only_looks = args.action != "add"
    if args.action == "add":
        if not args.on:
            raise InvalidInput(f"--on is missing. There are {', '.join(WORDS)}.")
        if bool(args.command) == args.url:
            raise InvalidInput("say either --url or --run COMMAND.")
        args.address = _address() if args.url else None


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.action == "add":
        return _add(hv, args)
    if args.action == "ls":
        return _list(hv, args)
    if args.action == "send":
        return _send(hv, args)
    if args.action == "failed":
        return _failed(hv, args)
    if args.action in ("retry", "drop"):
        count = (retry_notices if args.action == "retry" else drop_notices)(hv, args.name)
        what = "to be tried again" if args.action == "retry" else "dropped"
        return _say(args, {"notices": count}, f"{counted(count, 'dead letter')} {what}")
    if args.action == "rm":
        remove_rule(hv, args.name)
        return _say(args, {"removed": args.name}, f"rule {args.name} removed")
    try_rule(hv, args.name)
    return _say(args, {"arrived": True}, "the test arrived")


def _add(hv: Context, args: argparse.Namespace) -> int:
    on = [word.strip() for word in args.on.split(",") if word.strip()]
    made = add_rule(
        hv,
        args.name,
        on,
        args.command,
        args.address,
        batch=args.batch,
        type=args.type,
        tries=args.tries,
    )
    return _say(args, made, f"rule {made.name} added; `hv notify test {made.name}` tries it")


def _list(hv: Context, args: argparse.Namespace) -> int:
    found = rules(hv)
    if args.json:
        print_json(found)
    elif not found:
        print("no rules; `hv notify add` makes one")
    else:
        table(("RULE", "ON", "OF", "WAITING", "DEAD", "TO"), [_row(each) for each in found])
    return EXIT_OK


def _row(status: RuleStatus) -> tuple[str, ...]:
    rule = status.rule
    of = " ".join(part for part in (status.batch, rule.type) if part) or "all"
    to = " ".join(rule.command) or ("a URL" if status.reachable else "a URL kept on another host")
    return rule.name, ",".join(rule.on), of, str(status.waiting), str(status.failed), to


def _send(hv: Context, args: argparse.Namespace) -> int:
    done = send_notices(hv)
    if args.json:
        print_json(done)
    else:
        parts = [f"{counted(done.sent, 'notice')} delivered"]
        more = {"did not arrive": done.missed, "given up": done.given_up, "waiting": done.waiting}
        print(", ".join(parts + [f"{count} {word}" for word, count in more.items() if count]))
    return EXIT_UNSUCCESSFUL if done.missed or done.given_up else EXIT_OK


def _failed(hv: Context, args: argparse.Namespace) -> int:
    found = dead_letters(hv, args.name)
    if args.json:
        print_json(found)
        return EXIT_OK
    for notice in found:
        said = one_line(str(notice.data.get("said", notice.what)))
        why = f"{notice.tries} tries; {one_line(notice.said)}"
        print(f"{notice.rule}  {notice.number}  {clock(notice.at)}  {said}  ({why})")
    if not found:
        print("no dead letters")
    return EXIT_OK


def _say(args: argparse.Namespace, value: object, text: str) -> int:
    if args.json:
        print_json(value)
    else:
        print(one_line(text))
    return EXIT_OK


def _address() -> str:
    """Never from the command line, where everybody on this host could read it."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("URL: ").strip()
    return sys.stdin.readline().strip()
