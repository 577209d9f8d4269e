"""hv mcp"""

import argparse

from hypervisor.mcp.pipe import pipe_to
from hypervisor.mcp.profiles import PROFILES

EXAMPLE = """hv mcp
  hv mcp --tools worker"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="PATH|URL", help="use this store")
    parser.add_argument(
        "--tools",
        choices=PROFILES,
        default="all",
        metavar="PROFILE",
        help="tools to offer: worker (few), supervisor or all (default)",
    )


def run(args: argparse.Namespace) -> int:
    return pipe_to(args.tools, args.store).run()
