"""The parts of a context as a test wants them; those it does not name are missing."""

from types import SimpleNamespace
from typing import Any

from hypervisor.runs.config import Settings


def parts(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"settings": Settings(), "task_files": None, **given})
