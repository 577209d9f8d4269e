"""config.toml next to a store: its path and content."""

from __future__ import annotations

import os
from typing import Any

from hypervisor.core.errors import InvalidInput

FILE = "config.toml"


def read_config(folder: str) -> dict[str, Any]:
    """The tables of the config.toml in a folder; none if the file does not exist."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from None
    except RecursionError:
        raise InvalidInput(f"{path} cannot be read: nested too deeply.") from None
