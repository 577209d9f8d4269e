"""Render Jinja2 templates to self-contained pages.

All text is hostile. Whatever a template prints is escaped, and control characters and those that
change the direction of text are shown as their codes. Our style and script are inlined; the
page's security policy allows them by hash and forbids everything else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hypervisor.core.text import one_line

PACKAGE = "hypervisor.web"


def environment(most: int | None = None) -> Environment:
    """`most`: the number of characters that one expression prints at most."""
    env = Environment(
        loader=PackageLoader(PACKAGE),
        auto_reload=False,  # or it looks at the files of a template for each rendering
        autoescape=True,
        undefined=StrictUndefined,
        finalize=partial(_visible, most),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.policies["json.dumps_kwargs"] = {}  # keep the order of the members
    return env


def inlined(styles: Sequence[str], script: str) -> dict[str, Markup]:
    """The contents of static files, and the policy for a page that uses nothing else."""
    css, js = "".join(map(_static, styles)), _static(script)
    policy = (
        f"default-src 'none'; style-src {source_hash(css)}; script-src {source_hash(js)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(css), "script": Markup(js), "policy": Markup(policy)}


def source_hash(text: str) -> str:
    """The source expression that allows an inline style or script in a security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _static(name: str) -> str:
    return (files(PACKAGE) / "static" / name).read_text(encoding="utf-8")


def _visible(most: int | None, value: Any) -> Any:
    """What an expression prints, before it is escaped."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if most is not None and len(value) > most:
        return f"{one_line(value[:most])} … ({len(value) - most:,} more characters)"
    return one_line(value)
