"""`NamedTuple` as in `typing`, made in a tenth of the time.

Every process of Hypervisor defines dozens of them at its start, a short command included. `typing`
compiles each annotation and a constructor for each class; here, annotations stay text and a
constructor is compiled when the first value of its class is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter
    from sys import intern

    class _Fields(type):
        """Turns the body of a class into a tuple with names."""

        def __new__(cls, name, bases, body):
            annotations = body.get("__annotations__", {})
            fields = tuple(map(intern, annotations))
            defaults = {field: body[field] for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default after one with a default")
            body.update(
                {field: _tuplegetter(at, None) for at, field in enumerate(fields)},
                __slots__=(),
                __match_args__=fields,
                _fields=fields,
                _field_defaults=defaults,
            )
            for method, function in METHODS.items():
                body.setdefault(method, function)
            return type(name, (tuple,), body)

    class _Base:
        def __mro_entries__(self, _bases):
            return (type.__new__(_Fields, "NamedTuple", (), {}),)

    NamedTuple = _Base()

    def _first_value(cls, /, *args, **named):
        """Compile the constructor, then use it. A subclass shares that of its named tuple."""
        owner = next(c for c in cls.__mro__ if "_fields" in c.__dict__)
        owner.__new__ = staticmethod(_constructor(owner))
        return owner.__new__(cls, *args, **named)

    def _constructor(owner):
        values = ", ".join(owner._fields)
        comma = "," if len(owner._fields) == 1 else ""
        code = f"lambda _cls, {values}: _new(_cls, ({values}{comma}))"
        function = eval(code, {"_new": tuple.__new__, "__builtins__": {}})
        function.__defaults__ = tuple(owner._field_defaults.values()) or None
        function.__name__, function.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
        return function

    def _make(cls, iterable):
        value = tuple.__new__(cls, iterable)
        if len(value) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(value)}")
        return value

    def _replace(self, /, **changed):
        value = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise ValueError(f"Got unexpected field names: {list(changed)!r}")
        return value

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self):
        pairs = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __getnewargs__(self):
        return tuple(self)

    METHODS: dict[str, Any] = {
        "__new__": staticmethod(_first_value),
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": __repr__,
        "__getnewargs__": __getnewargs__,
    }
