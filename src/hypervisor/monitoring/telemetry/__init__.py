"""Traces for OpenTelemetry: batch, task, attempt, tool call."""
