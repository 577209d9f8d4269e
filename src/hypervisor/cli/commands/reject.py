"""hv reject"""

import argparse

from hypervisor.cli import bulk
from hypervisor.git.review import reject
from hypervisor.queue.context import Context

EXAMPLE = "hv reject 1q12deyb --reason 'not what was asked for'"

STATES = ("review",)
KEPT = (
    "its commits are kept; to get them: hv restore TASK --branch NAME, to try again: hv retry TASK"
)


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, reject, STATES, then=lambda hv, moved: [KEPT] if moved else [])
