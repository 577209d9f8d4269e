"""hv run

Running commands, functions and agents comes next; until then this shows the
queue at work on a few example tasks, through the same operations.
"""

from __future__ import annotations

import argparse

from hypervisor.domain.errors import EXIT_OK, InvalidInput
from hypervisor.domain.task import NewTask
from hypervisor.faces.cli.output import duration, print_json
from hypervisor.operations.add import add
from hypervisor.operations.claim import Done, claim, complete_and_claim
from hypervisor.operations.context import Context
from hypervisor.operations.look import stats
from hypervisor.operations.receipts import receipt, verify

EXAMPLE = "hv run example"
BATCH = "example"
TASKS = (
    NewTask("Read the inbox", key="inbox", priority="high"),
    NewTask("Sort the mails of October", key="october", after=("inbox",), exclusive=("mail",)),
    NewTask("Sort the mails of November", key="november", after=("inbox",), exclusive=("mail",)),
    NewTask("Look for broken links", key="links", type="search"),
    NewTask("Look for unused functions", key="unused", type="search"),
    NewTask("Write the report", key="report", after=("october", "november", "links", "unused")),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="example", help="the demonstration to run")


def prepare(args: argparse.Namespace) -> None:
    if args.what != BATCH:
        raise InvalidInput("so far only the demonstration can be run: `hv run example`.")


def run(hv: Context, args: argparse.Namespace) -> int:
    started = hv.now()
    added = add(hv, TASKS, BATCH)
    say = (lambda *_: None) if args.json else print
    say(f"batch {BATCH}: {len(added.ids)} tasks added, {len(added.duplicates)} already there")
    done = _work(hv, say)
    counted = stats(hv, BATCH)
    held = all(report.problem is None for report in verify(hv, BATCH))
    if args.json:
        print_json({"done_now": done, "stats": counted, "receipts_hold": held})
        return EXIT_OK
    if not done:
        say("everything is already complete; `hv retry --batch example --state done` starts over")
    took = duration(hv.now() - started)
    proof = "receipts hold" if held else "RECEIPTS BROKEN (`hv receipt verify`)"
    say(f"{counted.states['done']} of {counted.total} done, {done} now in {took}, {proof}")
    say("look around: hv ls · hv show ID · hv stats · hv events")
    return EXIT_OK


def _work(hv: Context, say: object) -> int:
    """Two workers take turns; finishing one task and claiming the next is one step."""
    assert callable(say)
    done = 0
    held = {name: list(claim(hv, name, batch=BATCH)) for name in ("ann", "bob")}
    while any(held.values()):
        for name, leases in held.items():
            if not leases:
                held[name] = list(claim(hv, name, batch=BATCH))
                continue
            lease = leases[0]
            say(f"  {name}  {lease.token}  {lease.task.title}")
            receipt(hv, lease.token, [f"{lease.task.title}: looked at it"])
            finished = [Done(lease.token, {"words": len(lease.task.title.split())})]
            held[name] = list(complete_and_claim(hv, finished, name, batch=BATCH).leases)
            done += 1
    return done
