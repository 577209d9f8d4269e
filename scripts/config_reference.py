"""Writes the tables of docs/config.md from the keys that config.toml may have."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from marked import keep

from hypervisor.cli.config_sections import SECTIONS, Section


def page_part() -> str:
    return "\n".join(line for section in SECTIONS for line in _section(section))


def _section(section: Section) -> Iterator[str]:
    yield from (f"## `{section.heading}`", "", section.about, "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for name, key in section.keys.items():
        default = f"`{key.default}`" if key.default else ""
        example = f", e.g. `{key.example}`" if key.example else ""
        yield f"| `{name}` | {key.type} | {default} | {key.help}{example} |"
    yield ""


if __name__ == "__main__":
    sys.exit(keep("docs/config.md", __file__, page_part(), sys.argv[1:]))
