"""The command line of a task, for people who want to run it themselves."""

from hypervisor.batches.reduce_input import with_result
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.inputs.items import item_of
from hypervisor.queue.context import Context
from hypervisor.queue.task import Batch, Task
from hypervisor.runs.spec import spec_from, template_of


def command_line(hv: Context, task: Task, batch: Batch | None) -> tuple[str, ...]:
    """The arguments; none if it is not a command, or cannot be made for the item."""
    if batch is None or not isinstance(batch.spec, dict):
        return ()
    try:
        spec = spec_from(batch.spec)
        if spec.command is None:
            return ()
        item = with_result(hv, task, item_of(task), spec)
        return tuple(template_of(spec.command).render(item))
    except (InvalidInput, NotFound):  # the item does not fit, or the previous task is gone
        return ()
