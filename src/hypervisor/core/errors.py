"""Every error a caller can meet, as one tree.

    HypervisorError
    ├── RequestError            the request cannot be carried out as it stands
    │   ├── InvalidInput        a value is missing, malformed or out of range
    │   │   └── SchemaMismatch  the data of a result does not fit the schema of its batch
    │   ├── NotFound            nothing has that id, name or prefix
    │   ├── AmbiguousId         the prefix fits more than one thing
    │   ├── WrongState          the task's state does not allow it
    │   ├── DependencyCycle     a task would wait for itself
    │   └── LeaseLost           the token is stale: the claim has ended
    ├── AgentError              an agent program cannot serve
    │   └── AgentNotReady       not installed, or not logged in
    └── StoreError              the store cannot serve
        ├── StoreBroken         damaged, or not a Hypervisor store at all
        ├── StoreNewer          written by a newer version
        ├── StoreReadOnly       may be read, not written
        ├── StoreFull           no space left; the change was not made
        ├── StoreGone           deleted, moved or replaced while it was open
        └── StoreUnavailable    unreachable, locked, somebody else's, or on an unsafe file system

Each class has a stable `code`; EXIT_CODES maps it once for the command line.
A message says what happened, what was kept, and what to do next.
"""

from __future__ import annotations


class HypervisorError(Exception):
    """Something went wrong that Hypervisor can name, in one line whatever names it quotes."""

    code = "error"

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class RequestError(HypervisorError):
    code = "request"


class InvalidInput(RequestError):
    code = "invalid_input"


class SchemaMismatch(InvalidInput):
    code = "schema_mismatch"


class NotFound(RequestError):
    code = "not_found"


class AmbiguousId(RequestError):
    code = "ambiguous_id"


class WrongState(RequestError):
    code = "wrong_state"


class DependencyCycle(RequestError):
    code = "dependency_cycle"

    def __init__(self, cycle: list[str]) -> None:
        self.cycle = cycle
        path = " → ".join(cycle)
        super().__init__(f"dependency cycle: {path}. Nothing was changed; drop one of these links.")


class LeaseLost(RequestError):
    code = "lease_lost"

    def __init__(self, token: str, why: str) -> None:
        self.token = token
        super().__init__(f"the claim {token} has ended: {why}. Nothing was changed; claim again.")


class AgentError(HypervisorError):
    code = "agent"


class AgentNotReady(AgentError):
    code = "agent_not_ready"


class StoreError(HypervisorError):
    code = "store"


class StoreBroken(StoreError):
    code = "store_broken"


class StoreNewer(StoreError):
    code = "store_newer"


class StoreReadOnly(StoreError):
    code = "store_read_only"


class StoreFull(StoreError):
    code = "store_full"


class StoreGone(StoreError):
    code = "store_gone"


class StoreUnavailable(StoreError):
    code = "store_unavailable"


EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_NOTHING_TO_CLAIM = 3
EXIT_RECEIPTS_BROKEN = 8
EXIT_UNSUCCESSFUL = 9  # the command did its work, but tasks of the run failed
EXIT_CHECKPOINT = 10  # so far so good: a chunk waits for a person's decision
EXIT_CODES = {
    "error": 1,
    "request": 2,
    "invalid_input": 2,
    "schema_mismatch": 2,
    "not_found": 4,
    "ambiguous_id": 4,
    "wrong_state": 5,
    "dependency_cycle": 5,
    "lease_lost": 6,
    "agent": 11,
    "agent_not_ready": 11,
    "store": 7,
    "store_broken": 7,
    "store_newer": 7,
    "store_read_only": 7,
    "store_full": 7,
    "store_gone": 7,
    "store_unavailable": 7,
}
