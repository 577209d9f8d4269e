"""The questions of `hv review`: a mistyped answer is reported, and the review continues."""

import pytest

from hypervisor.batches.review import chunks
from hypervisor.cli import checkpoint
from tests.batches import test_review as made_up

context = made_up.hv


@pytest.fixture
def answers(monkeypatch):
    """What the person types, in order."""

    def give(*texts):
        left = list(texts)
        monkeypatch.setattr("builtins.input", lambda prompt: left.pop(0))
        return left

    return give


@pytest.mark.parametrize("task", ["zzzzzzzz", "z", "no id at all"])
def test_a_mistyped_id_in_an_edit_asks_again(context, answers, capsys, task):
    made_up.start(context)
    made_up.work(context, [{"category": "fyi"}])
    left = answers("e", task, "category=task", "a", "")
    decided = checkpoint.ask(context, "b")
    assert decided is not None and decided.decision == "approved"
    assert not left
    assert task in capsys.readouterr().out


def test_a_mistyped_id_in_a_retry_asks_again(context, answers, capsys):
    made_up.start(context)
    made_up.work(context)
    left = answers("t", "look closer", "zzzzzzzz", "q")
    assert checkpoint.ask(context, "b") is None
    assert not left
    assert "no task has the id 'zzzzzzzz'" in capsys.readouterr().out
    assert chunks(context, "b")[0].tasks == {"done": 3}
