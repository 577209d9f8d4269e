"""Messages, pages, docstrings and comments are in plain English: some phrases must not come back.

The list has what sounded translated or private when people read it. A phrase belongs on it only if
it has practically no good use; quote it in `backticks` where a page has to name it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHRASES = (
    r"shall",
    r"anew",
    r"whoever",
    r"somebody",
    r"what came of",
    r"what (?:has )?become of",
    r"is there already",
    r"(?:is|are) there for nobody",
    r"(?:was|were) told to",
    r"goes on",
    r"went on",
    r"goes on by itself",
    r"one after the other",
    r"makes? no sense",
    r"at one blow",
    r"ended? (?:badly|well)",
    r"has changed meanwhile",
    r"(?:is|are) no (?:plain|valid|regular|duration|size|number|folder|program|JSON|error|success)",
    r"(?:is|are) no (?:failure|text|task|file|id|path|change|choice|secret|mistake|crash|skill)s?",
    r"there is no (?:file|folder|program|store|task|batch|agent|skill|branch|tool)",
    r"for ever",
    r"besides",
    r"dearer",
    r"smuggled",
    r"in one go",
    r"has no say",
    r"to be had",
    r"can(?:not)? be had",
    r"hinder(?:s|ed)?",
    r"hindrance",
    r"rests? until",
    r"the same again",
    r"nobody can be",
    r"nobody is told",
    r"so many \w+ at most",
    r"in vain",
    r"lets? (?:it|them) be",
    r"a word (?:about|of) it",
    r"without a word",
    r"time and again",
    r"mends?",
    # The spelling is American; `cancelled` is the name of a state, `judgement` of a category.
    r"(?:recogn|normal|initial|categor|organ)ise",
    r"(?:summar|recogn|normal|initial|categor|organ)is(?:ed|es|ing|ation)",
    r"(?:colour|behaviour|neighbour|favourite|artefact|labelled|licence)\w*",
)
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
TOOLS = sorted([*(ROOT / "scripts").glob("*.py"), *(ROOT / "bench").glob("*.py")])
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.md"),
        *(ROOT / "src").rglob("*.html"),
        *(ROOT / "src").rglob("*.toml"),
        *(ROOT / "bench").glob("*.md"),
    ]
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string of a module with its line, an f-string as a whole."""
    parts: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            parts.update(id(value) for value in node.values)
            yield node.lineno, "".join(_literal(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _literal(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "X"


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments, those on successive lines as one text."""
    first, last, texts = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] > last + 1:
                yield first, " ".join(texts)
                first, texts = token.start[0], []
            last = token.start[0]
            texts.append(token.string.lstrip("# "))
    yield first, " ".join(texts)


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """The prose of a page: without code, and without what is quoted in backticks."""
    page = re.sub(r"^```.*?^```", _blank_lines, page, flags=re.MULTILINE | re.DOTALL)
    line = 1
    for paragraph in page.split("\n\n"):
        prose = [text for text in paragraph.split("\n") if not text.startswith("    ")]
        yield line, re.sub(r"`[^`]*`", "`…`", " ".join(prose))
        line += paragraph.count("\n") + 2


def _blank_lines(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def found_in(texts: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"line {line}: {match[0]}"
        for line, text in texts
        for match in FORBIDDEN.finditer(" ".join(text.split()))
    ]


def forbidden(source: str) -> list[str]:
    return found_in(strings(ast.parse(source))) + found_in(comments(source))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_is_in_plain_english(path):
    assert forbidden(path.read_text()) == []


@pytest.mark.parametrize("path", [*TESTS, *TOOLS], ids=name)
def test_the_comments_and_docstrings_of_a_test_or_tool_are_in_plain_english(path):
    """Strings are not checked: they may be output to compare with, or odd on purpose."""
    source = path.read_text()
    assert found_in(docstrings(ast.parse(source))) + found_in(comments(source)) == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_is_in_plain_english(path):
    assert found_in(paragraphs(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    (
        '"""Let nobody claim\n    from there, whoever asks."""',
        'raise ValueError("which claim shall be kept alive?")',
        'print(f"{path} is there already")',
        'x = f"{value!r} is no duration: try 90s"',
        'x = ("it runs one after "\n     "the other")',
        "x = 1  # it is begun anew",
        "# a comment that goes\n# on in the next line\nx = 1",
    ),
)
def test_a_forbidden_phrase_is_found(source):
    assert len(forbidden(source)) == 1


def test_a_phrase_in_a_page_is_found_across_lines_but_not_in_code():
    page = "# Title\n\nThis is for\never.\n\n    for ever\n\n```\nfor ever\n```\n\n`whoever`\n"
    assert found_in(paragraphs(page)) == ["line 3: for ever"]


def test_plain_sentences_pass():
    source = 'x = "it is no longer running; there is no limit; a shallow copy, forever"'
    assert forbidden(source) == []
