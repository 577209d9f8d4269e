"""Runners of the functions in a folder, which end with the test."""

from __future__ import annotations

import textwrap

import pytest

from hypervisor.runs.functions.client import FunctionRunner
from tests.support.functions import (
    FUNCTIONS,
    attempt,
    plain_environment,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work.py").write_text(textwrap.dedent(FUNCTIONS))
    return tmp_path


@pytest.fixture
def make(folder):
    """Makes runners, by default for the functions in that folder; they end with the test."""
    made = []

    def maker(function, env=None, python=None):
        name = function if ":" in function else f"work:{function}"
        made.append(FunctionRunner(name, str(folder), env or plain_environment(), python))
        return made[-1]

    yield maker
    for runner in made:
        runner.stop()


@pytest.fixture
def output(folder):
    return folder / "output.log"


@pytest.fixture
def run(make, output):
    """One attempt from start to end, in an interpreter of its own."""
    return lambda function, item=None: attempt(make(function), item, output)
