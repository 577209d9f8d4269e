"""How a bad store is refused: in one clear line, with nothing changed."""

from __future__ import annotations

import pytest

import hypervisor
from hypervisor.core import errors


def assert_refused(where, kind):
    """Opening it is refused in one clear line that says what was kept."""
    with pytest.raises(errors.StoreError) as caught:
        hypervisor.open(where).close()
    assert type(caught.value) is kind, repr(caught.value)
    assert_clear(str(caught.value))
    return str(caught.value)


def assert_clear(message):
    assert message.isprintable(), repr(message)
    assert "Nothing was changed;" in message, message
    assert message.endswith(".")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
