"""hv dashboard"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from hypervisor.cli.arguments import duration, port_number
from hypervisor.cli.output import print_json, say, warn
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    import socket

    from hypervisor.web.dashboard.server import Options

DESCRIPTION = (
    "Open a live dashboard in the browser: what needs attention, what is running, batches, tasks "
    "and reviews. It is served on this machine only, until Ctrl-C."
)
EXAMPLE = """hv dashboard
  hv dashboard --detach --read-only
  hv dashboard --share 7d"""


class Answer(NamedTuple):
    url: str
    share: str | None = None  # a link that can only read
    pid: int | None = None  # in the background


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument("--detach", action="store_true", help="serve in the background")
    parser.add_argument("--read-only", action="store_true", help="show everything, change nothing")
    parser.add_argument(
        "--share",
        type=duration,
        metavar="DURATION",
        help="also print a link that can only read, for this long (12h, 7d)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="port (default: the same for a store each time); 0: any free port",
    )
    network = parser.add_argument_group("from other machines")
    network.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="address to serve on (127.0.0.1)"
    )
    network.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="also answer under this host name, such as that of a tunnel (repeatable)",
    )
    network.add_argument("--cert", metavar="FILE", help="TLS certificate")
    network.add_argument("--key", metavar="FILE", help="private key of the certificate")
    network.add_argument(
        "--plain-http", action="store_true", help="serve without TLS on other addresses"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.serving.http import open_port
    from hypervisor.web.dashboard import assets
    from hypervisor.web.dashboard.server import access_to, open_stable_port

    options = _options(args)
    options.check()
    if not assets.are_present():
        warn("hv: fetching the scripts of the dashboard from npm (once)…")
        assets.fetch()
    if args.port is None:
        listening = open_stable_port(hv.store.where, options.bind)
    else:
        listening = open_port(args.port, options.bind)
    with listening:
        address = options.address(listening.getsockname()[1])
        access = access_to(hv)
        url = f"{address}#t={access.token}"
        share = f"{address}#t={access.share(hv.now() + args.share)}" if args.share else None
        if args.detach:
            pid = hv.launcher.start_dashboard(listening.fileno(), options.text())
            _print(args, Answer(url, share, pid), f"running as process {pid}; stop it: kill {pid}")
            _open(args, url)
            return EXIT_OK
        _print(args, Answer(url, share), "Ctrl-C stops it")
        _open(args, url)
        _serve(hv, options, listening)
    return EXIT_OK


def _serve(hv: Context, options: "Options", listening: "socket.socket") -> None:
    from hypervisor.runs.processes.log_file import configure as configure_logging
    from hypervisor.web.dashboard.server import serve

    configure_logging(default="warning")
    serve(hv, options, listening)


def _options(args: argparse.Namespace) -> "Options":
    from hypervisor.web.dashboard.server import Options

    certificate, key = (os.path.abspath(p) if p else None for p in (args.cert, args.key))
    return Options(
        args.bind,
        tuple(args.allow_host),
        certificate,
        key,
        plain_http=args.plain_http,
        read_only=args.read_only,
        folder=os.getcwd(),
    )


def _print(args: argparse.Namespace, answer: Answer, hint: str) -> None:
    if args.json:
        print_json(answer._asdict())
        sys.stdout.flush()
        return
    say(f"dashboard at {answer.url}")
    if answer.share:
        say(f"read-only link: {answer.share}")
    say(hint)


def _open(args: argparse.Namespace, url: str) -> None:
    """Where a person sits in front of a screen."""
    if args.no_open or args.json or not sys.stdout.isatty():
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import webbrowser

        webbrowser.open(url)
