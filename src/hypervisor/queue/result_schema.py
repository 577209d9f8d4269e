"""Results that must follow the schema of their batch (`--schema`).

Data that does not fit is refused once, so that the agent can correct it; the second time its task
fails. A refusal is a receipt, so it counts whoever asks: the worker, the MCP server, `hv done`.
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

REFUSED = "the data does not fit the schema: "
LONGEST = 500


def fitted(hv: Context, claim: Token, schema: str, result: Json) -> Json:
    """The result of a claim, if it fits the schema of its batch; bare data as its `data`.

    SchemaMismatch: it does not fit. The second time, the task has failed."""
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
        raise SchemaMismatch(f"{why}. It is the second time: the task has failed.")
    receipt(hv, str(claim), [f"{REFUSED}{mismatch}"])
    raise SchemaMismatch(
        f"{REFUSED}{mismatch}. Nothing was changed: correct the data and complete the task again. "
        "If it does not fit then, the task fails."
    )


def mismatch_of(schema: str, result: Json) -> str | None:
    """Where the data of a result first fails to fit and why, None if it fits."""
    data = result.get("data") if isinstance(result, dict) else None
    error = _first_error(json.loads(schema), data)
    return "data is missing" if error and data is None else error


def refused_before(hv: Context, claim: Token) -> str:
    """Why data for the same task was refused since it last failed or was given to somebody by
    a person; "" if it was not."""
    earlier = [
        each
        for each in hv.store.read(queries.detail, claim.task).attempts
        if each.number < claim.attempt
    ]
    back = takewhile(lambda each: each.outcome == "released", reversed(earlier))
    numbers = {claim.attempt, *(each.number for each in back)}
    texts = [
        each.text.removeprefix(REFUSED)
        for each in hv.store.read(receipts.of_task, claim.task)
        if each.attempt in numbers and each.text.startswith(REFUSED)
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

    # An empty registry: a schema must not make us fetch anything.
    validator = validators.validator_for(schema)(schema, registry=Registry())
    try:
        error = next(iter(validator.iter_errors(data)), None)
    except Unresolvable as missing:
        return f"the schema refers to {missing.ref}, which it does not contain"
    if error is None:
        return None
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    said = f"data{where}: {error.message}"
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
