"""Skills are run as a person runs them."""

from tests.cli.conftest import project

__all__ = ["project"]
