"""Pools of workers: what priorities, strategies and limits are applied to."""

from typing import NamedTuple


class Pool(NamedTuple):
    """The workers of a batch; where agents work on it, those of one agent."""

    batch: str
    agent: str = ""
