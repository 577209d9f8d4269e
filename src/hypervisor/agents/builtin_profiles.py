"""The agents that are known from the start: builtin_profiles.toml, as profiles."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hypervisor.agents.profile import AgentProfile, Price

MIB = 1 << 20
# How an agent gets to its provider from here: proxies and certificates. All of them get these.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")


def _profile(name: str, table: Mapping[str, Any]) -> AgentProfile:
    values = {field: _frozen(value) for field, value in table.items()}
    values["passes"] = (*values.get("passes", ()), *PROXIES, *CERTIFICATES)
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
        return MappingProxyType({name: _frozen(each) for name, each in value.items()})
    return tuple(value) if isinstance(value, list) else value


BUILTIN = {
    name: _profile(name, table)
    for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
