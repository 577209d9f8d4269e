"""Dependencies between items, by id, path or file name, and on tasks of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator

from hypervisor.batches.preflight_findings import chains
from hypervisor.core.errors import RequestError
from hypervisor.inputs.named_files import declared, is_task_file
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context

MAX_UNKNOWN = 1_000  # names that are looked up in the store one by one


class ItemLinks:
    def __init__(self) -> None:
        self._keys: dict[str, str] = {}  # an item's names → its key
        self._finished: set[str] = set()  # the names of finished items
        self._needs: dict[str, tuple[str, ...]] = {}  # key → the names it waits for
        self._stored: set[str] = set()  # names that the store knows
        self._circular: set[str] = set()

    def add(self, item: Item, key: str) -> None:
        if is_task_file(item) or isinstance((item.columns or {}).get("depends_on"), list):
            for name in _names(item):
                self._keys.setdefault(name, key)
            if needs := tuple(map(_clean, declared(item, "depends_on"))):
                self._needs[key] = needs

    def add_finished(self, item: Item) -> None:
        self._finished.update(_names(item))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The dependencies as pairs of keys."""
        for key, needs in self._needs.items():
            yield from ((key, self._keys[name]) for name in needs if name in self._keys)

    def unknown(self, hv: Context | None) -> Iterator[str]:
        """Dependencies that name neither an item nor a task of the store."""
        lookups = 0
        for key, needs in self._needs.items():
            for name in needs:
                if name in self._keys or name in self._finished or name in self._stored:
                    continue
                lookups += 1
                if hv is not None and lookups <= MAX_UNKNOWN and _is_task(hv, name):
                    self._stored.add(name)
                else:
                    yield f"{name} ({_short(key)})"

    def chains(self) -> tuple[int, int, list[str]]:
        """The number of items with dependencies, the longest chain, and the cycles."""
        graph = {
            key: {self._keys[name] for name in needs if name in self._keys} - {key}
            for key, needs in self._needs.items()
        }
        graph = {key: needs for key, needs in graph.items() if needs}
        complete = {**{need: set() for needs in graph.values() for need in needs}, **graph}
        steps, cycles = chains(complete)
        self._circular = {key for cycle in cycles for key in cycle}
        shown = [" → ".join(map(_short, (*cycle, cycle[0]))) for cycle in cycles]
        return len(graph), steps, shown

    def after(self, item: Item, key: str) -> list[str]:
        """The keys or ids of the tasks that an item waits for, without those of its own cycle."""
        keys = []
        for name in map(_clean, declared(item, "depends_on")):
            need = self._keys.get(name) or (name if name in self._stored else "")
            if need and need != key and not {key, need} <= self._circular:
                keys.append(need)
        return list(dict.fromkeys(keys))


def _names(item: Item) -> Iterator[str]:
    """The names that other items may use for this one: its id, its path, its file name."""
    columns = item.columns or {}
    if isinstance(columns.get("id"), (str, int)):
        yield str(columns["id"])
    if is_task_file(item):
        base = os.path.basename(item.text)
        yield from (item.text, base, os.path.splitext(base)[0])


def _is_task(hv: Context, name: str) -> bool:
    try:
        return bool(hv.resolve(name))
    except RequestError:
        return False


def _clean(name: str) -> str:
    """Links may be written as [[name]] or [[name|shown]]."""
    if name.startswith("[[") and name.endswith("]]"):
        return name[2:-2].partition("|")[0].strip()
    return name


def _short(key: str) -> str:
    return key.rpartition(" #")[0] or key
