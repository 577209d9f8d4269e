"""The file in which gemini saves a session."""

from __future__ import annotations

import glob
import os
from contextlib import suppress


def protect_gemini_session(home: str, session: str) -> None:
    """Rename the file, so that resuming cannot overwrite it.

    Over ACP, gemini first begins a session with the id it should resume, in a file named after that
    id and the current minute. In the minute in which the session began, that is its own file: it
    would be empty before it is read. Gemini finds sessions by their content, under any name.
    """
    if not session.replace("-", "").isalnum():
        return
    pattern = f".gemini/tmp/*/chats/session-????-*-{session[:8]}.jsonl"
    for path in glob.glob(os.path.join(glob.escape(home), pattern)):
        with suppress(OSError):
            os.rename(path, f"{path.removesuffix('.jsonl')}-saved.jsonl")
