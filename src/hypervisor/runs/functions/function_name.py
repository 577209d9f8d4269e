"""The name that other processes import a function by: package.module:function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from hypervisor.core.errors import InvalidInput


def function_name(function: Callable[..., Any] | str, cwd: str) -> str:
    """The name of a function that can be imported from `cwd`; a name is returned as it is.

    InvalidInput: it exists in this process only.
    """
    if isinstance(function, str):
        return function
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        raise _refusal(repr(function)[:100], "has no name to import it by")
    if "<" in name:
        kind = "is a lambda" if name.endswith("<lambda>") else "is defined inside a function"
        raise _refusal(name, kind)
    if module == "__main__":
        raise _refusal(name, "is defined in the script that runs (__main__)")
    if _named(module, name) != function:
        raise _refusal(f"{module}:{name}", "is a method of an object, or was replaced")
    _check_folder(module, cwd)
    return f"{module}:{name}"


def _refusal(name: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{name} {reason}, so other processes cannot import it. Move it to the top level of a "
        "module and pass module.function, or 'module:function'."
    )


def _named(module: str, name: str) -> object:
    value: object = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _check_folder(module: str, cwd: str) -> None:
    """A script's folder is on the path of the script's own process only."""
    package = sys.modules[module.partition(".")[0]]
    file = getattr(package, "__file__", None)
    if not file or not sys.path or not sys.path[0]:
        return
    folder = os.path.dirname(os.path.realpath(file))
    if hasattr(package, "__path__"):
        folder = os.path.dirname(folder)
    if folder == os.path.realpath(sys.path[0]) != os.path.realpath(cwd):
        raise InvalidInput(
            f"module {module} is in {folder}, where only this script looks for modules. "
            f"Pass cwd={folder!r}, or install the module."
        )
