"""A folder of files, and tasks that propose to change them."""

from __future__ import annotations

import pytest

import hypervisor
from tests.batches.plans.proposed import BATCH, TEXT
from tests.support.proposing import propose, result


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "here"
    (made / "in").mkdir(parents=True)
    for name in "abc":
        (made / "in" / f"{name}.md").write_text(TEXT)
    (tmp_path / "secret").write_text("secret")
    return made


@pytest.fixture
def hv(folder):
    with hypervisor.open(folder / ".hypervisor", relaxed=True) as opened:
        opened.actor = "ann"
        yield opened


@pytest.fixture
def given(hv, folder):
    """Tasks that propose these actions, one task for each list of them."""

    def giver(*lists, **more):
        return propose(hv, BATCH, folder, [result(*each) for each in lists], **more)

    return giver
