"""Spans over OTLP/HTTP, by the exporter of OpenTelemetry. The extra `telemetry` has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hypervisor import __version__
from hypervisor.monitoring.telemetry.span import Span
from hypervisor.runs.telemetry_settings import TelemetrySettings

SCOPE = InstrumentationScope("hypervisor", __version__)
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
MILLISECOND = 1_000_000  # nanoseconds


def exporter(settings: TelemetrySettings) -> Callable[[Sequence[Span]], bool]:
    """Sends spans and says whether they were accepted. What the settings do not say, such as
    headers and the timeout, the variables OTEL_EXPORTER_OTLP_* do."""
    otlp = OTLPSpanExporter(endpoint=settings.endpoint or None)
    service = os.environ.get(OTEL_SERVICE_NAME) or SCOPE.name
    resource = Resource.create({"service.name": service, "service.version": __version__})

    def send(spans: Sequence[Span]) -> bool:
        made = [_readable(span, resource) for span in spans]
        return otlp.export(made) is SpanExportResult.SUCCESS

    return send


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    status = {True: StatusCode.OK, False: StatusCode.ERROR, None: StatusCode.UNSET}[span.ok]
    return ReadableSpan(
        span.name,
        context=_context(span.trace, span.id),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=resource,
        attributes=dict(span.attributes),
        kind=SpanKind.INTERNAL,
        instrumentation_scope=SCOPE,
        status=Status(status, span.problem or None if span.ok is False else None),
        start_time=span.started_at * MILLISECOND,
        end_time=span.ended_at * MILLISECOND,
    )


def _context(trace: int, id: int) -> SpanContext:
    return SpanContext(trace, id, is_remote=False, trace_flags=SAMPLED)
