"""The built-in profiles, read from builtin_profiles.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hypervisor.agents.profile import AgentProfile, Price

MIB = 1 << 20


def _profile(name: str, table: Mapping[str, Any]) -> AgentProfile:
    values = {field: _frozen(value) for field, value in table.items()}
    if "codes" in table:
        codes = {int(code): kind for code, kind in table["codes"].items()}
        values["codes"] = MappingProxyType(codes)
    if "price" in table:
        values["price"] = Price(**table["price"])
    if "memory" in table:
        values["memory"] = int(table["memory"].removesuffix("M")) * MIB
    return AgentProfile(name, **values)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(member) for name, member in value.items()})
    return tuple(value) if isinstance(value, list) else value


BUILTIN = {
    name: _profile(name, table)
    for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
