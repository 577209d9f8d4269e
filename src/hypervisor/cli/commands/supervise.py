"""hv supervise"""

import argparse
import os
import signal
import time
from collections.abc import Mapping

from hypervisor.cli.json_form import named
from hypervisor.cli.output import one_line, respond, say
from hypervisor.core.errors import EXIT_OK, InvalidInput, WrongState
from hypervisor.monitoring.status import status
from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.queries import batches, events
from hypervisor.queue.sql import queries
from hypervisor.runs.processes.log_file import configure as configure_logging
from hypervisor.runs.supervise import supervise

DESCRIPTION = "Run the supervisor of this host, in the foreground or in the background."
EXAMPLE = """hv supervise
  hv supervise --detach
  hv supervise --detach --stay"""
SHOWN = (
    "governor",
    "learner",
    "overseer",
    "pause",
    "resume",
    "scale",
    "trouble",
    "leftovers",
    "gc",
)
PAGE = 1_000
ASKED = {
    "drain": "draining: running tasks will finish; Ctrl-C again stops them",
    "stop": "stopping running tasks; they go back into the queue",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--detach", action="store_true", help="run in the background until there is nothing to do"
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="with --detach: keep running while idle, for work that other hosts add",
    )


def prepare(args: argparse.Namespace) -> None:
    if args.stay and not args.detach:
        raise InvalidInput(
            "--stay needs --detach; in the foreground, a supervisor always keeps running."
        )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.detach:
        pid = supervise(hv, stay=args.stay)
        return respond(args, {"supervisor": pid}, f"supervisor running as process {pid}")
    _refuse_second(hv)
    configure_logging(default="warning")
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    log = DecisionLog(hv, args.json)
    hv.make_supervisor(None).run(each_tick=log.report)
    if not log.has_begun:  # another one was quicker
        _refuse_second(hv)
    return EXIT_OK


def _refuse_second(hv: Context) -> None:
    pid = status(hv).supervisor
    if pid is not None:
        raise WrongState(
            f"a supervisor for this store is already running on this host (process {pid}); to "
            "watch it: hv status --watch"
        )


class DecisionLog:
    """Prints when the supervisor has started, then the decisions of governor and overseer."""

    def __init__(self, hv: Context, as_json: bool) -> None:
        self._hv, self._as_json = hv, as_json
        self._last = queries.end_of_log(hv.store)
        self._asked = ""
        self.has_begun = False

    def report(self, asked: str) -> None:
        if not self.has_begun and not self._as_json:
            say(f"supervisor running as process {os.getpid()}; Ctrl-C drains, twice stops")
        self.has_begun = True
        if asked != self._asked and not self._as_json:
            say(ASKED[asked])
        self._asked = asked
        while page := events(self._hv, self._last, PAGE):
            self._last = page[-1].seq
            for event in page:
                if event.kind in SHOWN:
                    self._print(event)
            if len(page) < PAGE:
                return

    def _print(self, event: Event) -> None:
        if self._as_json:
            import json

            say(json.dumps(named(self._hv, event)))
        else:
            at = time.strftime("%H:%M:%S", time.localtime(event.at / 1000))
            names = {batch.id: batch.name for batch in batches(self._hv)} if event.batch else {}
            say(one_line(f"{at}  {sentence(event, names)}"))


def sentence(event: Event, names: Mapping[str, str]) -> str:
    """A decision as text; `names` of batches by their ids."""
    data = event.data if isinstance(event.data, dict) else {}
    about = f"{event.task}: " if event.task else ""
    if event.kind in ("pause", "resume"):
        name = str(data.get("name", ""))
        what = f"{data.get('scope', '')} {names.get(name, name)}".strip()
        why = f": {data['reason']}" if data.get("reason") else ""
        return f"{event.kind} of {what} by {event.actor}{why}"
    if event.kind == "scale":
        workers = data.get("workers")
        where = f"batch {names.get(event.batch, event.batch)}" if event.batch else "this host"
        return f"{where} scaled to {'auto' if workers is None else workers} by {event.actor}"
    if event.kind == "gc":
        kind = "outputs" if "outputs" in data else "tasks"
        return f"{data.get(kind, 0)} old {kind} deleted"
    return f"{about}{data.get('message', event.kind)}"
