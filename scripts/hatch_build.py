"""Puts the scripts of the dashboard into the package (scripts/web_assets.py). A checkout that is
only linked, not built, fetches them when the dashboard is first opened."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            runpy.run_path(str(Path(self.root) / "scripts" / "web_assets.py"), run_name="__main__")
