"""Claim tokens in text: whoever reads one could end the claim, so its code is hidden."""

from __future__ import annotations

import re

from hypervisor.core.ids import ALPHABET, CODE_LENGTH, LENGTH, OLD_CODE_LENGTH

# What is named "claim" may be shown.
TOKEN = (
    rf"(?<![0-9a-z])(?P<claim>[{ALPHABET}]{{{LENGTH}}}\.[0-9]{{1,9}}\.)"
    rf"(?:[{ALPHABET}]{{{CODE_LENGTH}}}|[{ALPHABET}]{{{OLD_CODE_LENGTH}}})(?![0-9a-z])"
)
LONGEST_TOKEN = LENGTH + 1 + 9 + 1 + CODE_LENGTH
_TOKEN = re.compile(TOKEN)


def hide_tokens(text: str) -> str:
    """The text, with whatever looks like a claim's token naming only task and attempt."""
    return _TOKEN.sub(r"\g<claim>…", text)
