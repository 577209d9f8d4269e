"""Results that must match the schema of their batch (`--schema`).

Data that does not match is refused once, so that the agent can correct it; the second time the task
fails. A refusal is a receipt, so it counts for every caller: the worker, the MCP server, `hv done`.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import Any

from hypervisor.core.errors import InvalidInput, LeaseLost, SchemaMismatch
from hypervisor.queue import settle
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, Token
from hypervisor.queue.receipts import receipt
from hypervisor.queue.sql import queries, receipts
from hypervisor.queue.task import Json

REFUSED = "the data does not match the schema: "
MAX_LENGTH = 500


def enforce_schema(hv: Context, claim: Token, schema: str, result: Json) -> Json:
    """The result of a claim if it matches the schema of its batch, with bare data as its `data`.

    SchemaMismatch: it does not match. The second time, the task has failed."""
    if not schema:
        return result
    whole: Json = result if isinstance(result, dict) and "data" in result else {"data": result}
    mismatch = mismatch_of(schema, whole)
    if mismatch is None:
        return whole
    if refused_before(hv, claim):
        why = f"{REFUSED}{mismatch}"
        settled = settle.settle(
            hv.store, [AttemptResult(claim, "fail", reason=why, receipts=(why,))], hv.now()
        )[0]
        if settled.lost:
            raise LeaseLost(str(claim), settled.lost)
        raise SchemaMismatch(f"{why}. This was the second time, so the task has failed.")
    receipt(hv, str(claim), [f"{REFUSED}{mismatch}"])
    raise SchemaMismatch(
        f"{REFUSED}{mismatch}. Nothing was changed: correct the data and complete the task again. "
        "If it does not match the schema then, the task fails."
    )


def mismatch_of(schema: str, result: Json) -> str | None:
    """Where and why the data of a result does not match, None if it does."""
    data = result.get("data") if isinstance(result, dict) else None
    error = _first_error(json.loads(schema), data)
    return "data is missing" if error and data is None else error


def refused_before(hv: Context, claim: Token) -> str:
    """Why data for the same task was refused since it last failed or was reassigned by a person;
    "" if it was not."""
    attempts = hv.store.read(queries.detail, claim.task).attempts
    earlier = [attempt for attempt in reversed(attempts) if attempt.number < claim.attempt]
    released = takewhile(lambda attempt: attempt.outcome == "released", earlier)
    numbers = {claim.attempt, *(attempt.number for attempt in released)}
    texts = [
        line.text.removeprefix(REFUSED)
        for line in hv.store.read(receipts.of_task, claim.task)
        if line.attempt in numbers and line.text.startswith(REFUSED)
    ]
    return texts[-1] if texts else ""


def check_schema(text: str) -> None:
    """InvalidInput: it is not a JSON Schema."""
    from jsonschema import SchemaError, validators

    schema = json.loads(text)
    try:
        validators.validator_for(schema).check_schema(schema)
    except SchemaError as error:
        where = "".join(f"/{part}" for part in error.absolute_path)
        raise InvalidInput(
            f"invalid JSON Schema{where and f' at {where}'}: {error.message}"
        ) from None


def _first_error(schema: Any, data: Any) -> str | None:
    from jsonschema import validators
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry, so that a schema cannot make us fetch anything.
    validator = validators.validator_for(schema)(schema, registry=Registry())
    try:
        error = next(iter(validator.iter_errors(data)), None)
    except Unresolvable as missing:
        return f"the schema refers to {missing.ref}, which it does not contain"
    if error is None:
        return None
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    message = f"data{where}: {error.message}"
    return message if len(message) <= MAX_LENGTH else message[: MAX_LENGTH - 1] + "…"
