"""Named tuples behave like those of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from hypervisor.core.records import NamedTuple


class Ours(NamedTuple):
    """A documented record."""

    name: str
    size: int = 0
    tags: tuple[str, ...] = ()

    @property
    def is_big(self) -> bool:
        return self.size > 9


class Theirs(typing.NamedTuple):
    name: str
    size: int = 0
    tags: tuple[str, ...] = ()


class Narrower(Ours):
    def shout(self) -> str:
        return self.name.upper()


class Empty(NamedTuple):
    pass


class Single(NamedTuple):
    value: int


def _made(record: Any, args: Any, named: Any) -> Any:
    return record(*args, **named)


def test_a_value_is_made_as_in_typing():
    for args, named in ((("a",), {}), (("a", 3), {}), ((), {"size": 3, "name": "a"})):
        ours, theirs = _made(Ours, args, named), _made(Theirs, args, named)
        assert ours == theirs == tuple(ours)
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
        assert ours._asdict() == theirs._asdict()
    assert Ours._fields == Theirs._fields == Ours.__match_args__
    assert Ours._field_defaults == Theirs._field_defaults
    assert Ours("a", 10).is_big
    assert (Empty(), Single(3)) == ((), (3,))


@pytest.mark.parametrize("args, named", [((), {}), (("a", 1, (), 2), {}), (("a",), {"other": 1})])
def test_wrong_arguments_are_refused_each_time(args, named):
    for _ in range(2):
        with pytest.raises(TypeError, match=r"__new__\(\)"):
            _made(Ours, args, named)


def test_a_copy_with_changes():
    assert Ours("a")._replace(size=2, tags=("x",)) == ("a", 2, ("x",))
    with pytest.raises(ValueError, match="other"):
        Ours("a")._replace(other=1)  # type: ignore[call-arg]
    assert Ours._make(["a", 1, ()]) == Ours("a", 1)
    with pytest.raises(TypeError):
        Ours._make(["a"])


def test_fields_cannot_be_assigned_or_added():
    for name in ("size", "other"):
        with pytest.raises(AttributeError):
            setattr(Ours("a"), name, 1)


def test_a_value_is_copied_and_pickled():
    value = Ours("a", 1, ("x",))
    for same in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert same == value
        assert type(same) is Ours


def test_a_subclass_keeps_its_class():
    value = Narrower("a")._replace(size=1)
    assert type(value) is Narrower
    assert (value.shout(), value.size) == ("A", 1)
    assert type(Ours("b")) is Ours


def test_patterns_and_annotations():
    match Ours("a", 2):
        case Ours(name, size=2):
            assert name == "a"
        case _:
            pytest.fail("no match")
    assert Ours.__annotations__["size"] == "int"
    assert Ours.__doc__ == "A documented record."


def test_a_field_without_a_default_must_not_follow_one_with_a_default():
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            first: int = 0
            second: int  # type: ignore[misc]
