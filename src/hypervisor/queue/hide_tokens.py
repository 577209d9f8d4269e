"""Hides claim tokens in text: with a whole token, a reader could end the claim."""

from __future__ import annotations

import re

from hypervisor.core.ids import ALPHABET, CODE_LENGTH, LENGTH, OLD_CODE_LENGTH

# The group "claim" may be shown.
TOKEN = (
    rf"(?<![0-9a-z])(?P<claim>[{ALPHABET}]{{{LENGTH}}}\.[0-9]{{1,9}}\.)"
    rf"(?:[{ALPHABET}]{{{CODE_LENGTH}}}|[{ALPHABET}]{{{OLD_CODE_LENGTH}}})(?![0-9a-z])"
)
MAX_TOKEN_LENGTH = LENGTH + 1 + 9 + 1 + CODE_LENGTH
_TOKEN = re.compile(TOKEN)


def hide_tokens(text: str) -> str:
    """The text, with everything that looks like a token cut to its task and attempt."""
    return _TOKEN.sub(r"\g<claim>…", text)
