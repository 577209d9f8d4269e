"""The items of a run: read once to check and count them, and again to add their tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hypervisor.cli.arguments import start_time
from hypervisor.cli.output import one_line, warn
from hypervisor.cli.run import pipeline
from hypervisor.cli.run.request import ChunkOptions, RunRequest, Words
from hypervisor.cli.run.sources import Source
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.hive.branch import branch_here
from hypervisor.inputs import items as reading
from hypervisor.inputs.duplicates import DuplicateFinder
from hypervisor.inputs.item_names import printable_path
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item, Template, parse
from hypervisor.queue.add import check_task
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask

if TYPE_CHECKING:
    from hypervisor.batches.cut_chunks import Numbering
    from hypervisor.batches.preflight import Survey
    from hypervisor.cli.run.agents import AgentChoice
    from hypervisor.git.item_files import ItemFiles
    from hypervisor.runs.rerun import Rerun


class RunItems:
    """`count`, `left_out` and the survey are complete after construction. There is a survey only
    if task files or rows are among the items."""

    def __init__(
        self,
        request: RunRequest,
        make_survey: Callable[[], Survey],
        agents: AgentChoice | None,
        template: Template | None,
        then: Sequence[Template] = (),
        *,
        files: ItemFiles | None = None,
    ) -> None:
        keys = request.tasks.exclusive
        self.request, self.rerun = request, request.rerun
        self.survey: Survey | None = None
        self._make_survey, self._agents, self._files = make_survey, agents, files
        base = request.tasks.new_task("an item")._replace(exclusive=keys)
        self.base = check_task(base)._replace(exclusive=())
        self.numbering = _numbering(request.chunks)
        self._template, self._then = template, then
        self._keys = parse(keys) if keys else None
        self._own_keys = parse(keys, append=False) if keys else None
        self._source = Source(request.items)
        self._places: dict[str | None, Item] = {}
        self._problem: InvalidInput | None = None
        self._all_usable = False
        self.count = self._check()
        self.left_out = self._source.bad
        self._refuse_waiting_for_later()

    def usable(self) -> Iterator[Item]:
        """The items that the command can be built for; the others are left out and reported."""
        if self._all_usable:  # as the first pass has shown
            yield from self._source
            return
        self._problem = None
        templates = [template for template in (self._template, self._keys) if template is not None]
        for item in self._source:
            try:
                for template in templates:
                    template.check(None if item.columns is None else item.columns.keys())
                    template.render(item)
                pipeline.check_item(self._then, item)
            except InvalidInput as error:
                self._problem = self._problem or error
                self._source.leave_out(printable_path(item.text)[:200], str(error))
            else:
                yield item

    def tasks(self, hv: Context, batch: str, after: Words) -> Iterator[NewTask]:
        """A task for each item, or for each chunk; `after`: complete ids."""
        options, agents = self.request.tasks, self._agents
        branch = options.branch or branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", ""))
        base = options._replace(branch=branch or "", after=after).new_task("")
        base = base._replace(start_at=start_time(options.at, options.delay, hv.now()))
        if self.request.chunks.per == "chunk":
            from hypervisor.batches.cut_chunks import ChunkLists

            assert self.numbering is not None
            lists = ChunkLists(hv, batch, self.numbering.names)
            for item in self.usable():
                survey = self._survey_of(item)
                if not (survey and survey.skips(item)):
                    lists.add(self.numbering.place(item), item)
            yield from lists.tasks(base)
            return
        for item, occurrence in reading.occurrences(self.usable(), self._repeated):
            survey = self._survey_of(item)
            if not (survey and survey.skips(item)):
                task = self._completed(self._task(item, base, occurrence), item)
                yield agents.router.labelled(task) if agents else task

    def choose_rerun(self, hv: Context, rerun: Rerun) -> None:
        """Run other items again than those that were asked for."""
        self.rerun = rerun
        if self.survey:
            self.survey.choose_rerun(hv, rerun)

    def close(self) -> None:
        self._source.close()

    def _task(self, item: Item, base: NewTask, occurrence: int = 1) -> NewTask:
        if self._agents is None:
            return task_for(item, base, occurrence)
        from hypervisor.agents.preflight import agent_task

        return agent_task(item, base, occurrence)

    def _completed(self, task: NewTask, item: Item) -> NewTask:
        """The task with its dependencies, exclusive keys and chunk."""
        if survey := self._survey_of(item):
            after, shared = survey.after_for(item), survey.exclusive_for(item)
            task = task._replace(after=(*task.after, *after), exclusive=shared)
        if self.numbering:
            task = task._replace(chunk=self.numbering.place(item))
        if self._own_keys:
            own = map(printable_path, self._own_keys.render(item))
            keys = dict.fromkeys((*task.exclusive, *own))
            task = task._replace(exclusive=tuple(keys))
        return task

    def _survey_of(self, item: Item) -> Survey | None:
        """The survey, if the item is a task file or row, which can name dependencies."""
        plain = item.columns is None or self.request.takes_files_as_they_are
        if not plain and self.survey is None:
            self.survey = self._make_survey()
        return None if plain else self.survey

    def _check(self) -> int:
        duplicates, count, risky = DuplicateFinder(), 0, None
        for item in self.usable():
            count += 1
            duplicates.add(reading.item_hash(item))
            if self._agents:
                self._agents.survey.add(self._task(item, self.base))
            if self.numbering:
                self.numbering.see(item)
            if survey := self._survey_of(item):
                survey.add(item)
                if self.numbering and self.request.chunks.gate != "none":
                    self._places[task_for(item, self.base).key] = item
            if self._files and not (survey and survey.skips(item)):
                self._files.add(item.text)
            if self._template is not None and risky is None and self._template.risky(item):
                risky = item.text
        if not count and self._problem is not None:
            raise self._problem  # the command cannot be built for any item
        self._all_usable, self._repeated = self._problem is None, duplicates.duplicates()
        self._report_left_out()
        if risky is not None:
            warn(
                f"hv: the item {one_line(risky[:60])!r} begins with a dash; the command may "
                "read it as an option (use `-- {}` or `./{}`)"
            )
        return count

    def _report_left_out(self) -> None:
        """Rows and files that cannot be used are left out, with a message."""
        for place, why in self._source.first_bad:
            warn(f"hv: {one_line(place)}: {one_line(why)} Left out.")
        if (more := self._source.bad - len(self._source.first_bad)) > 0:
            warn(f"hv: {pluralize(more, 'more item')} left out.")

    def _refuse_waiting_for_later(self) -> None:
        """Refuse a task that depends on one in a later chunk, behind a checkpoint."""
        if not (self._places and self.survey and self.numbering):
            return
        place = self.numbering.place
        for key, needed in self.survey.links():
            first, second = self._places.get(key), self._places.get(needed)
            if first and second and place(first) < place(second):
                raise InvalidInput(
                    f"{first.text} depends on {second.text}, which is in a later chunk: with a "
                    f"checkpoint in between it would wait forever. Choose other chunks, or no "
                    f"gate. Nothing was started."
                )


def _numbering(options: ChunkOptions) -> Numbering | None:
    if options == ChunkOptions():
        return None
    from hypervisor.batches.cut_chunks import DEFAULT_SIZE, Cut, Numbering, check_cut

    cut = check_cut(Cut(options.chunk, options.chunk_by, options.chunk_size))
    if not any(cut) and options.gate == "none" and options.per == "item":
        return None
    return Numbering(cut if any(cut) else Cut(size=DEFAULT_SIZE))
