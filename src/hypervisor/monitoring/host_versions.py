"""Whether hosts run the same versions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MAJOR_MINOR = ("python",)  # patch releases of Python work together


def comparable(name: str, version: str) -> str:
    return ".".join(version.split(".")[:2]) if name in MAJOR_MINOR else version


def differences(hosts: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """For each host that differs from most others: what differs, as sentences.

    `hosts`: the versions of each, by the name of the program. A program that a host does not have
    is compared only where it is installed."""
    found: dict[str, list[str]] = {}
    for program in sorted({name for versions in hosts.values() for name in versions}):
        known = {host: versions[program] for host, versions in hosts.items() if program in versions}
        counts = Counter(comparable(program, version) for version in known.values())
        if len(counts) < 2:
            continue
        usual = _usual(counts, known, program)
        for host, version in known.items():
            if comparable(program, version) != usual:
                found.setdefault(host, []).append(f"{program} {version}, others {usual}")
    return {host: tuple(texts) for host, texts in found.items()}


def _usual(counts: Counter[str], known: Mapping[str, str], program: str) -> str:
    """The most common version; of two that are equally common, that of the first host."""
    most = max(counts.values())
    return next(
        comparable(program, version)
        for version in known.values()
        if counts[comparable(program, version)] == most
    )
