"""hv version"""

import argparse
import platform

from hypervisor import __version__
from hypervisor.cli.json_form import VERSION
from hypervisor.cli.output import respond
from hypervisor.core.extras import DISTRIBUTION

EXAMPLE = """hv version
  hv version --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    versions = {
        "name": DISTRIBUTION,
        "version": __version__,
        "python": platform.python_version(),
        "json": VERSION,
    }
    return respond(args, versions, f"hv {__version__}")
