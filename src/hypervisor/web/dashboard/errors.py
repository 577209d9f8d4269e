"""The HTTP status of each error."""

from __future__ import annotations

from hypervisor.core.errors import HypervisorError

STATUS = {
    "invalid_input": 400,
    "schema_mismatch": 400,
    "not_found": 404,
    "ambiguous_id": 400,
    "wrong_state": 409,
    "batch_conflict": 409,
    "batch_paused": 409,
    "dependency_cycle": 409,
    "lease_lost": 409,
}


def status_of(error: HypervisorError) -> int:
    return STATUS.get(error.code, 503)
