"""The items of a run: read once to check and count them, and once more to make their tasks."""

import os
import sys
from collections.abc import Iterator, Sequence

from hypervisor.agents.agents import Router
from hypervisor.agents.preflight import agent_task
from hypervisor.batches.chunk import NONE
from hypervisor.batches.cut_chunks import DEFAULT_SIZE, ChunkLists, Cut, Numbering, check_cut
from hypervisor.batches.preflight import Survey
from hypervisor.cli.output import one_line
from hypervisor.cli.run import pipeline
from hypervisor.cli.run.request import ChunkOptions, RunRequest, Words
from hypervisor.cli.run.sources import Source
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.hive.branch import branch_here
from hypervisor.inputs import items as reading
from hypervisor.inputs.duplicates import DuplicateFinder
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item, Template, parse
from hypervisor.queue.add import check_task
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask


class RunItems:
    """`count`, `left_out` and the survey are known once it is made."""

    def __init__(
        self,
        request: RunRequest,
        survey: Survey,
        router: Router | None,
        template: Template | None,
        then: Sequence[Template] = (),
    ) -> None:
        keys = request.tasks.key
        self.request, self.survey = request, survey
        base = request.tasks.new_task("an item")._replace(exclusive=keys)
        self.base = check_task(base)._replace(exclusive=())
        self.numbering = _numbering(request.chunks)
        self._template, self._then = template, then
        self._router = router
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
        """The items that the command can be made for; the others are left out and reported."""
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
                self._source.leave_out(reading.printable_path(item.text)[:200], str(error))
            else:
                yield item

    def tasks(self, hv: Context, batch: str, after: Words) -> Iterator[NewTask]:
        """A task for each item, or for each chunk; `after` has whole ids."""
        options, router = self.request.tasks, self._router
        branch = options.branch or branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", ""))
        base = options._replace(branch=branch or "", after=after).new_task("")
        if self.request.chunks.per == "chunk":
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
                make = agent_task if router else task_for
                task = self._completed(make(item, base, occurrence), item)
                yield router.labelled(task) if router else task

    def close(self) -> None:
        self._source.close()

    def _completed(self, task: NewTask, item: Item) -> NewTask:
        """With its dependencies, its exclusive keys and its chunk."""
        if survey := self._survey_of(item):
            after, shared = survey.after_for(item), survey.exclusive_for(item)
            task = task._replace(after=(*task.after, *after), exclusive=shared)
        if self.numbering:
            task = task._replace(chunk=self.numbering.place(item))
        if self._own_keys:
            keys = dict.fromkeys((*task.exclusive, *self._own_keys.render(item)))
            task = task._replace(exclusive=tuple(keys))
        return task

    def _survey_of(self, item: Item) -> Survey | None:
        """Task files and rows say what they wait for; other items say nothing."""
        plain = item.columns is None or self.request.takes_files_as_they_are
        return None if plain else self.survey

    def _check(self) -> int:
        duplicates, count, risky = DuplicateFinder(), 0, None
        for item in self.usable():
            count += 1
            duplicates.add(reading.item_hash(item))
            if self.survey.agents:
                self.survey.agents.add(agent_task(item, self.base))
            if self.numbering:
                self.numbering.see(item)
            if survey := self._survey_of(item):
                survey.add(item)
                if self.numbering and self.request.chunks.gate != NONE:
                    self._places[task_for(item, self.base).key] = item
            if self._template is not None and risky is None and self._template.risky(item):
                risky = item.text
        if not count and self._problem is not None:
            raise self._problem  # the command fits none of them
        self._all_usable, self._repeated = self._problem is None, duplicates.duplicates()
        self._report_left_out()
        if not count:
            names = ", ".join(self.request.items.items or ["standard input"])
            raise InvalidInput(f"there are no items in {names}. Nothing was started.")
        if risky is not None:
            print(
                f"hv: the item {one_line(risky[:60])!r} begins with a dash: the command may take "
                "it for an option (`-- {}` or `./{}` helps).",
                file=sys.stderr,
            )
        return count

    def _report_left_out(self) -> None:
        """Rows and files that cannot be used are left out, with a message."""
        for place, why in self._source.first_bad:
            print(f"hv: {one_line(place)}: {one_line(why)} Left out.", file=sys.stderr)
        if (more := self._source.bad - len(self._source.first_bad)) > 0:
            print(f"hv: {pluralize(more, 'more item')} left out.", file=sys.stderr)

    def _refuse_waiting_for_later(self) -> None:
        """Behind a checkpoint they would wait for each other for ever."""
        for key, needed in self.survey.links() if self._places and self.numbering else ():
            first, second = self._places.get(key), self._places.get(needed)
            place = self.numbering.place if self.numbering else None
            if first and second and place and place(first) < place(second):
                raise InvalidInput(
                    f"{first.text} waits for {second.text}, which is in a later chunk: behind a "
                    "checkpoint it would wait for ever. Cut the batch otherwise, or use no gate. "
                    "Nothing was started."
                )


def _numbering(options: ChunkOptions) -> Numbering | None:
    cut = check_cut(Cut(options.chunk, options.chunk_by, options.chunk_size))
    if not any(cut) and options.gate == NONE and options.per == "item":
        return None
    return Numbering(cut if any(cut) else Cut(size=DEFAULT_SIZE))
