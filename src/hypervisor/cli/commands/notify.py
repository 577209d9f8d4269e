"""hv notify"""

import argparse
import sys

from hypervisor.cli.arguments import synonym
from hypervisor.cli.output import clock, one_line, respond, table
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.notifications.notice import MAX_TRIES, WORDS
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
        type=synonym(list="ls", remove="rm", delete="rm"),
        choices=ACTIONS,
        help="add, list (ls), remove (rm) or test a rule; send due notices now; list, retry or "
        "drop notices that failed",
    )
    parser.add_argument("name", nargs="?", metavar="RULE", help="the rule's name")
    parser.add_argument(
        "--on", metavar="EVENTS", help=f"add: events, separated by commas: {', '.join(WORDS)}"
    )
    parser.add_argument("--batch", metavar="BATCH", help="add: only events of this batch")
    parser.add_argument("--type", default="", metavar="TYPE", help="add: only tasks of this type")
    parser.add_argument(
        "--url",
        action="store_true",
        help="add: send to a URL (a webhook, or any that apprise supports), read from stdin or "
        "asked for, as it may contain a secret",
    )
    parser.add_argument(
        "--run",
        dest="command",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="COMMAND",
        help="add: run this command (the rest of the line) without a shell; it gets the event as "
        "JSON on stdin and in HV_EVENT… variables",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=MAX_TRIES,
        metavar="N",
        help=f"add: give up after this many tries (default {MAX_TRIES})",
    )


def prepare(args: argparse.Namespace) -> None:
    if args.name is None and args.action in NEEDS_NAME:
        raise InvalidInput(f"`hv notify {args.action}` needs the name of a rule.")
    if args.action != "add" and (args.command or args.on or args.batch or args.url or args.type):
        raise InvalidInput("--on, --batch, --type, --url and --run are for `hv notify add`.")
    args.only_looks = args.action != "add"
    if args.action == "add":
        if not args.on:
            raise InvalidInput(f"--on is missing: choose from {', '.join(WORDS)}.")
        if bool(args.command) == args.url:
            raise InvalidInput("use either --url or --run COMMAND.")
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
        outcome = "will be retried" if args.action == "retry" else "dropped"
        return respond(args, {"notices": count}, f"{pluralize(count, 'dead letter')} {outcome}")
    if args.action == "rm":
        remove_rule(hv, args.name)
        return respond(args, {"removed": args.name}, one_line(f"rule {args.name} removed"))
    try_rule(hv, args.name)
    return respond(args, {"arrived": True}, "test message delivered")


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
    text = one_line(f"rule {made.name} added; to test it: hv notify test {made.name}")
    return respond(args, made, text, hv=hv)


def _list(hv: Context, args: argparse.Namespace) -> int:
    listed = rules(hv)
    if not listed:
        return respond(args, listed, "no rules; add one with `hv notify add`")
    head = ("RULE", "EVENTS", "TASKS", "WAITING", "FAILED", "TO")
    return respond(args, listed, lambda: table(head, map(_row, listed)), hv=hv)


def _row(status: RuleStatus) -> tuple[str, ...]:
    rule = status.rule
    tasks = " ".join(part for part in (status.batch, rule.type) if part) or "all"
    to = " ".join(rule.command) or ("a URL" if status.reachable else "a URL kept on another host")
    return rule.name, ",".join(rule.on), tasks, str(status.waiting), str(status.failed), to


def _send(hv: Context, args: argparse.Namespace) -> int:
    done = send_notices(hv)
    more = {"failed": done.missed, "given up": done.given_up, "waiting": done.waiting}
    parts = [f"{pluralize(done.sent, 'notice')} delivered"]
    parts += [f"{count} {word}" for word, count in more.items() if count]
    failed = done.missed or done.given_up
    return respond(args, done, ", ".join(parts), EXIT_UNSUCCESSFUL if failed else EXIT_OK)


def _failed(hv: Context, args: argparse.Namespace) -> int:
    letters, lines = dead_letters(hv, args.name), []
    for notice in letters:
        event = one_line(str(notice.data.get("message", notice.what)))
        tried = "once" if notice.tries == 1 else f"{notice.tries} times"
        why = f"tried {tried}; {one_line(notice.error)}"
        lines.append(f"{notice.rule}  {notice.number}  {clock(notice.at)}  {event}  ({why})")
    return respond(args, letters, lines or "no dead letters")


def _address() -> str:
    """Never taken from the command line, where every user of this host could read it."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("URL: ").strip()
    return sys.stdin.readline().strip()
