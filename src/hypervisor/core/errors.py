"""All errors, as one tree.

    HypervisorError
    ├── RequestError            the request cannot be carried out
    │   ├── InvalidInput        a value is missing, malformed or out of range
    │   │   └── SchemaMismatch  the data of a result does not match the schema of its batch
    │   ├── NotFound            nothing has that id, name or prefix
    │   ├── AmbiguousId         the prefix matches more than one thing
    │   ├── WrongState          the task's state does not allow it
    │   ├── BatchConflict       the batch of that name was run with something else
    │   ├── BatchPaused         a person has paused the batch
    │   ├── DependencyCycle     a task would wait for itself
    │   └── LeaseLost           the token is stale: the claim has ended
    ├── AgentError              an agent program cannot be used
    │   └── AgentNotReady       not installed, or not logged in
    ├── WorkspaceError          a workspace or its repository cannot be used
    │   ├── GitUnusable         git is missing or too old
    │   ├── GitFailed           git refused, or took too long
    │   └── NotCollected        it is not clear which commits are the work of an attempt
    ├── SandboxUnavailable      this host cannot build the sandbox that was asked for
    ├── SupervisorFailed        the supervisor of this host did not start
    ├── ClusterError            a cluster cannot be reached or is not safe to use
    ├── TaskFailed              an item of a run did not succeed (Python only)
    └── StoreError              the store cannot be used
        ├── StoreBroken         damaged, or not a Hypervisor store at all
        ├── StoreNewer          written by a newer version, perhaps while it was open
        ├── StoreReadOnly       can be read but not written
        ├── StoreFull           no space left; the change was not made
        ├── StoreGone           deleted, moved or replaced while it was open
        └── StoreUnavailable    unreachable, locked, owned by another user, or on a network mount

Each class has a stable `code`; EXIT_CODES maps it once for the command line.
A message says what happened, what was kept, and what to do next.
"""

from __future__ import annotations


class HypervisorError(Exception):
    """An error with a stable code; its message is one line, whatever text it quotes."""

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


class BatchConflict(RequestError):
    code = "batch_conflict"


class BatchPaused(RequestError):
    code = "batch_paused"

    def __init__(self, batch: str, why: str) -> None:
        self.batch = batch
        super().__init__(why)


class DependencyCycle(RequestError):
    code = "dependency_cycle"

    def __init__(self, cycle: list[str]) -> None:
        self.cycle = cycle
        path = " → ".join(cycle)
        super().__init__(
            f"dependency cycle: {path}. Nothing was changed; remove one of these dependencies."
        )


class LeaseLost(RequestError):
    code = "lease_lost"

    def __init__(self, token: str, why: str) -> None:
        self.token = token
        super().__init__(f"the claim {token} has ended: {why}. Nothing was changed; claim again.")


class AgentError(HypervisorError):
    code = "agent"


class AgentNotReady(AgentError):
    code = "agent_not_ready"


class WorkspaceError(HypervisorError):
    code = "workspace"


class GitUnusable(WorkspaceError):
    code = "git_unusable"


class GitFailed(WorkspaceError):
    code = "git_failed"

    def __init__(self, what: str, message: str, exit_code: int | None = None) -> None:
        """`exit_code`: None if git did not get as far as to exit by itself."""
        self.message, self.exit_code = message, exit_code
        super().__init__(f"{what} failed: {message}")


class NotCollected(WorkspaceError):
    code = "not_collected"


class SandboxUnavailable(HypervisorError):
    code = "sandbox_unavailable"


class SupervisorFailed(HypervisorError):
    code = "supervisor_failed"


class ClusterError(HypervisorError):
    code = "cluster"


class TaskFailed(HypervisorError):
    code = "task_failed"

    def __init__(self, task: str, item: object, state: str, reason: str | None) -> None:
        self.task, self.item, self.state, self.reason = task, item, state, reason
        why = f": {reason}" if reason else ""
        super().__init__(f"task {task} is {state}{why}; `hv logs {task}` shows its output")


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


# A process that sees one of these can do nothing more for its store, and ends.
STORE_LOST = (StoreGone, StoreNewer)


EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_NOTHING_TO_CLAIM = 3
EXIT_RECEIPTS_BROKEN = 8
EXIT_UNSUCCESSFUL = 9  # the command did its work, but tasks of the run failed
EXIT_CHECKPOINT = 10  # no failure so far; a chunk is waiting for a decision
EXIT_CODES = {
    "error": 1,
    "request": 2,
    "invalid_input": 2,
    "schema_mismatch": 2,
    "not_found": 4,
    "ambiguous_id": 4,
    "wrong_state": 5,
    "batch_conflict": 5,
    "batch_paused": 5,
    "dependency_cycle": 5,
    "lease_lost": 6,
    "agent": 11,
    "agent_not_ready": 11,
    "workspace": 13,
    "git_unusable": 13,
    "git_failed": 13,
    "not_collected": 13,
    "sandbox_unavailable": 15,
    "supervisor_failed": 12,
    "cluster": 14,
    "task_failed": EXIT_UNSUCCESSFUL,
    "store": 7,
    "store_broken": 7,
    "store_newer": 7,
    "store_read_only": 7,
    "store_full": 7,
    "store_gone": 7,
    "store_unavailable": 7,
}
