"""hv approve"""

import argparse

from hypervisor.cli import bulk
from hypervisor.git.review import approve
from hypervisor.queue.context import Context

EXAMPLE = "hv approve 1q12deyb --reason 'the file belongs to it'"

STATES = ("review",)
FOLLOW = "it is verified again and merged; to follow: hv queue"


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, approve, STATES, then=lambda hv, moved: [FOLLOW] if moved else [])
