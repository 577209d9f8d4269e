"""The built-in profiles, read from builtin_profiles.toml when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypervisor.agents.profile import AgentProfile

MIB = 1 << 20


class BuiltinProfiles(Mapping[str, "AgentProfile"]):
    @cached_property
    def _profiles(self) -> dict[str, AgentProfile]:
        import tomllib
        from pathlib import Path

        tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
        return {name: _profile(name, table) for name, table in tables.items()}

    def __getitem__(self, name: str) -> AgentProfile:
        return self._profiles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)


def _profile(name: str, table: Mapping[str, Any]) -> AgentProfile:
    from hypervisor.agents.profile import AgentProfile, Price

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


BUILTIN = BuiltinProfiles()
