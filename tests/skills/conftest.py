"""Skills run from the command line."""

from tests.cli.conftest import project

__all__ = ["project"]
