"""hv serve"""

import argparse
import sys

from hypervisor.cli.arguments import port_number
from hypervisor.cli.output import print_json, say
from hypervisor.core.errors import EXIT_OK
from hypervisor.mcp.profiles import PROFILES
from hypervisor.queue.context import Context

EXAMPLE = """hv serve
  hv serve --port 8425 --tools supervisor"""
PORT = 8424


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=port_number,
        default=PORT,
        metavar="N",
        help=f"port on 127.0.0.1 (default {PORT}); 0: any free port",
    )
    parser.add_argument(
        "--tools",
        choices=PROFILES,
        default="all",
        metavar="PROFILE",
        help="tools to offer: worker (few), supervisor or all (default)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.mcp.claims import ClaimRegistry
    from hypervisor.mcp.http import PATH, TOKEN_FILE, serve
    from hypervisor.mcp.server import build
    from hypervisor.serving.http import HOST, open_port

    path, token = hv.secret(TOKEN_FILE)
    listening = open_port(args.port)
    url = f"http://{HOST}:{listening.getsockname()[1]}{PATH}"
    registry = ClaimRegistry(hv, pid=0)
    server = build(args.tools, registry)
    if args.json:
        print_json({"url": url, "token_file": path})
        sys.stdout.flush()
    else:
        say(f"MCP server at {url}; the bearer token is in {path}; Ctrl-C stops it")
    serve(server, registry, token, listening)
    return EXIT_OK
