"""Fits the repository's pages into the website: a hook of MkDocs, named in mkdocs.yml.

Pages are written to be read in the repository. On the website the README is the home page, and the
other pages of the top folder have a place as well. Links to anything else, such as source files,
become plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
TOP_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "AGENTS.md": "for-coding-agents.md",
}
IN_REPOSITORY = {place: name for name, place in TOP_PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
# GitHub draws these diagrams. Here they would need a script from the network.
DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


def on_files(files: Any, *, config: Any) -> Any:
    for name, place in TOP_PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    folder = posixpath.dirname(IN_REPOSITORY.get(place, f"docs/{place}"))

    def link(match: re.Match[str]) -> str:
        image, label, target, anchor = match.groups()
        goal = _on_site(posixpath.normpath(posixpath.join(folder, target)))
        if goal is None:
            return label
        path = posixpath.relpath(goal, posixpath.dirname(place) or ".")
        return f"{image}[{label}]({path}{anchor or ''})"

    return LINK.sub(link, DIAGRAM.sub("", markdown))


def _on_site(path: str) -> str | None:
    """The website's page or picture for a file of the repository, if it has one."""
    if path in TOP_PAGES:
        return TOP_PAGES[path]
    inside = path.startswith("docs/") and (ROOT / path).is_file()
    return path.removeprefix("docs/") if inside else None
