"""Run specs from flat fields, as in the store, so that a test names only what matters."""

from typing import Any

from hypervisor.runs.spec import COMMON, GIT, KINDS, LIMITS, WORK, RunSpec, spec_data, spec_from


def run_spec(
    cwd: str = "/",
    command: tuple[str, ...] = (),
    function: str | None = None,
    shell: bool = False,
    **fields: Any,
) -> RunSpec:
    """Of a command, unless a function or an agent is named."""
    stored = {"cwd": cwd, "command": command, "function": function, "shell": shell, **fields}
    return _spec(stored, fields)


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """The spec with other values for fields of any of its parts."""
    return _spec({**spec_data(spec), **fields}, fields)


def _spec(stored: dict[str, Any], fields: dict[str, Any]) -> RunSpec:
    """A field that belongs to another kind of work is a mistake in the test."""
    spec = spec_from(stored)
    known = {*KINDS, *COMMON, *LIMITS, *GIT.values(), *WORK[type(spec.work)].values()}
    assert set(fields) <= known, set(fields) - known
    return spec
