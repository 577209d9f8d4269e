"""hv mcp"""

from __future__ import annotations

import argparse
import os

from hypervisor.core.store_path import meant, store_path
from hypervisor.mcp.pipe import Pipe
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
        help="which tools: worker (few), supervisor, all (default)",
    )


def run(args: argparse.Namespace) -> int:
    store = meant(args.store, os.environ)
    return Pipe(args.tools, store if "://" in store else store_path(store, create=True)).run()
