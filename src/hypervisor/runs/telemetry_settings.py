"""Whether traces are sent, and where: [telemetry] of config.toml and the standard variables."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.core.records import NamedTuple

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TelemetrySettings(NamedTuple):
    """Where traces are sent. `traces` None: if an endpoint is set, here or in the environment."""

    traces: bool | None = None
    endpoint: str = ""
    content: bool = False


def telemetry_of(
    wanted: TelemetrySettings, environment: Mapping[str, str]
) -> TelemetrySettings | None:
    """The settings if traces are to be sent. The standard variables can turn them off."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if environment.get("OTEL_TRACES_EXPORTER") == "none" or wanted.traces is False:
        return None
    has_endpoint = wanted.endpoint or any(environment.get(name) for name in ENDPOINTS)
    return wanted if wanted.traces or has_endpoint else None
