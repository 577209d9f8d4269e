"""hv mcp"""

import argparse
import os
from typing import Any, cast

from hypervisor.core.errors import EXIT_OK
from hypervisor.queue.context import Context

FOR_US_ALONE = (
    "HV_TOKEN",
    "HV_KEEPER_PID",
    "HV_KEEPER_NAME",
    "HV_PULL",
    "HV_CAPABILITIES",
    "HV_HIDE",
)
PROFILES = ("worker", "supervisor", "all")
EXAMPLE = """hv mcp
  hv mcp --tools worker"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        choices=PROFILES,
        default="all",
        metavar="PROFILE",
        help="which tools: worker (few), supervisor, all (default)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.mcp.claims import ClaimRegistry, given_by
    from hypervisor.mcp.stdio import serve

    if not hv.has_store:
        from hypervisor.mcp.lazy_store import StoreLater

        hv.store = cast(Any, StoreLater(lambda: args.make().store))
    desk = ClaimRegistry(hv, given_by(os.environ))
    for name in FOR_US_ALONE:  # what we start is not that attempt, and must not act for it
        os.environ.pop(name, None)
    serve(args.tools, desk)
    return EXIT_OK
