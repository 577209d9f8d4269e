"""hv serve"""

import argparse
import sys

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
        type=int,
        default=PORT,
        metavar="N",
        help=f"on 127.0.0.1 (default {PORT}); 0: any that is free",
    )
    parser.add_argument(
        "--tools",
        choices=PROFILES,
        default="all",
        metavar="PROFILE",
        help="which tools: worker (few), supervisor, all (default)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.mcp.claims import ClaimRegistry
    from hypervisor.mcp.http import HOST, PATH, TOKEN_FILE, open_port, serve
    from hypervisor.mcp.server import build

    path, token = hv.secret(TOKEN_FILE)
    listening = open_port(args.port)
    url = f"http://{HOST}:{listening.getsockname()[1]}{PATH}"
    registry = ClaimRegistry(hv, pid=0)
    server = build(args.tools, registry)
    if args.json:
        print_json({"url": url, "token_file": path})
        sys.stdout.flush()
    else:
        say(f"MCP at {url}; the bearer token is in {path}; Ctrl-C ends it")
    serve(server, registry, token, listening)
    return EXIT_OK
