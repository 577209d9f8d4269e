"""How a batch is to be run: whether what somebody asks for makes sense."""

from hypervisor.agents.agents import check_agent_spec
from hypervisor.batches.chunk import GATES
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.config import MOST_WORKERS
from hypervisor.runs.spec import STRATEGIES, RunSpec

CHOICES = {
    "gate": GATES,
    "result": ("none", "json"),
    "write_back": ("none", "receipts", "status"),
}
FOR_AGENTS = (
    "agents",
    "fallback",
    "prompt",
    "allow",
    "model",
    "turns",
    "task_budget",
    "budget",
    "task_tokens",
    "tokens",
    "schema",
)


def check_spec(spec: RunSpec) -> RunSpec:
    """The spec, if it makes sense."""
    if sum(map(bool, (spec.command, spec.function, spec.agent))) != 1:
        raise InvalidInput(
            "say what to run: a command, a function with --fn, or an agent with --agent."
        )
    if spec.agent:
        check_agent_spec(spec)
    elif wrong := [name for name in FOR_AGENTS if getattr(spec, name)]:
        raise InvalidInput(f"{wrong[0]} goes with an agent only.")
    if spec.strategy not in STRATEGIES:
        raise InvalidInput(f"unknown strategy: use one of {', '.join(STRATEGIES)}.")
    for name, allowed in CHOICES.items():
        if getattr(spec, name) not in allowed:
            raise InvalidInput(f"{name} is unknown: use one of {', '.join(allowed)}.")
    if spec.workers is not None:
        validate.number("the number of workers", spec.workers, 1, MOST_WORKERS)
    if spec.claim is not None:
        validate.number("the number of tasks to claim at once", spec.claim, 1, 1000)
    if spec.function is not None:
        module, colon, function = spec.function.partition(":")
        if not (colon and module and function):
            raise InvalidInput(f"{spec.function!r} is no function: write package.module:function.")
    return spec
