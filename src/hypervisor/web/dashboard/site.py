"""All pages of the dashboard: each module in `pages/` has tables of its own."""

from __future__ import annotations

from hypervisor.web.dashboard.page import Action, Menu, Page, Raw
from hypervisor.web.dashboard.pages import (
    agents,
    batches,
    events,
    hive,
    home,
    hosts,
    learning,
    merge_queue,
    metrics,
    new_run,
    notifications,
    review,
    review_item,
    reviews,
    task,
    tasks,
    timeline,
)

MENU = (
    Menu("/", "Home"),
    Menu("/batches", "Batches"),
    Menu("/tasks", "Tasks"),
    Menu("/review", "Review"),
    Menu("/merge-queue", "Merge queue"),
    Menu("/agents", "Agents"),
    Menu("/hive", "Hive"),
    Menu("/learning", "Learning"),
    Menu("/notifications", "Notifications"),
    Menu("/events", "Events"),
    Menu("/hosts", "Hosts"),
    Menu("/new", "New run"),
)
_MODULES = (
    home,
    batches,
    timeline,
    tasks,
    task,
    reviews,  # before the pages of chunks, whose paths are less specific
    review,
    review_item,
    merge_queue,
    agents,
    hive,
    learning,
    notifications,
    events,
    hosts,
    new_run,
    metrics,
)
PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
ACTIONS: tuple[Action, ...] = tuple(
    action for module in _MODULES for action in getattr(module, "ACTIONS", ())
)
RAW: tuple[Raw, ...] = tuple(raw for module in _MODULES for raw in getattr(module, "RAW", ()))
