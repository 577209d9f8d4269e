"""No credentials are in the files of the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Built from parts, so that this file does not contain what it looks for.
PATTERNS = {
    "private key": "-----BEGIN [A-Z ]*PRIVATE" + " KEY-----",
    "AWS key": r"\bAKIA" + r"[0-9A-Z]{16}\b",
    "GitHub token": r"\bgh[pousr]" + r"_[A-Za-z0-9]{36}\b",
    "Anthropic key": r"\bsk-ant-" + r"[a-z0-9]+-[A-Za-z0-9_-]{40,}",
    "OpenAI key": r"\bsk-(proj-)?" + r"[A-Za-z0-9]{40,}\b",
    "Google key": r"\bAIza" + r"[0-9A-Za-z_-]{35}\b",
    "npm token": r"\bnpm" + r"_[A-Za-z0-9]{36}\b",
    "PyPI token": r"\bpypi-" + r"AgEI[A-Za-z0-9_-]{50,}",
    "Slack token": r"\bxox[abprs]" + r"-[0-9A-Za-z-]{20,}",
}
SECRET = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS.values()))


def test_no_file_has_a_credential():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout
    if not listed:
        pytest.skip("not a checkout")
    found = {}
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink():
            match = SECRET.search(path.read_text(encoding="utf-8", errors="replace"))
            if match:
                found[name] = match[0][:12]
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "ghp" + "_" + "a1" * 18,
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "-----BEGIN OPENSSH PRIVATE" + " KEY-----",
        "sk-ant-" + "api03-" + "x" * 50,
    ],
)
def test_credentials_are_recognized(text):
    assert SECRET.search(f'key = "{text}"')
