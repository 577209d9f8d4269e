r"""Command templates: words with placeholders, made into the argv of an item.

| placeholder | of `a/b.tar.gz`, the third item |
|---|---|
| `{}` | the item: `a/b.tar.gz` |
| `{.}` | without its extension: `a/b.tar` |
| `{/}` | its base name: `b.tar.gz` |
| `{//}` | its folder: `a`; `.` if it has none, `/` for the root |
| `{/.}` | its base name without the extension: `b.tar` |
| `{#}` | its number: `3` |
| `{name}` | its column of that name, from CSV or JSONL: a letter or `_`, then also digits and `-` |

Without any of them in the command, the item becomes its last argument. The extension is the last
`.…` of the base name; a name that only begins with a dot (`.bashrc`) has none. A slash at the end
of an item does not count for `{/}`, `{//}` and `{/.}`.

Any other brace stays as it is, and so do a placeholder in doubled braces (`{{name}}`, as other
template languages write it) and `${name}`, which is a shell's. `{{}` gives one plain brace: thus
`{{}}` gives `{}`, and `{{}name}` gives `{name}`.

In shell mode the words, joined by spaces, are a script, and inserted values are quoted. That works
only outside the script's own quotes, so a placeholder inside quotes is refused, and so is one after
anything unclear. It also works only for this one shell: a script that passes the item to another
(`eval`, `ssh`, `sh -c`) has to quote it once more.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.item_names import is_name, is_utf8

MAX_WORD_LENGTH = 131_071  # bytes; Linux does not accept longer arguments
ALWAYS_SHORT = MAX_WORD_LENGTH // 4  # characters: as UTF-8 each takes at most four bytes
MARK = "\0"  # stands for a placeholder in a script, which cannot contain it otherwise

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
TOKEN = re.compile(
    rf"""
      (?P<brace> \{{\{{\}} )
    | \{{\{{ (?: /?\. | //? | \# | {NAME} ) \}}\}}
    | (?<!\$) \{{ (?P<name> {NAME} ) \}}
    | \{{ (?P<part> /?\. | //? | \# | ) \}}
    """,
    re.VERBOSE,
)


class Item(NamedTuple):
    """An item of a run: its text, its number in the input from 1, its named columns, and a
    reviewer's note if it is done again."""

    text: str
    number: int = 1
    columns: Mapping[str, Any] | None = None
    note: str = ""
    other: tuple[Any, ...] = ()  # the value, if it is neither text nor columns

    @property
    def value(self) -> Any:
        """The argument for a function."""
        if self.other:
            return self.other[0]
        return self.text if self.columns is None else self.columns

    @property
    def title(self) -> str:
        """The item as shown to people."""
        return self.text


Value = Callable[[Item], str]
Piece = str | Value


class Template(NamedTuple):
    """A parsed command, ready to render for any item."""

    words: tuple[str, ...]
    shell: bool
    names: tuple[str, ...]  # the columns that it needs
    uses_item: bool  # False: it has no placeholder, so the item was appended
    fixed: tuple[str, ...]  # the argv, "" for words that change with the item
    changing: tuple[tuple[int, tuple[Piece, ...]], ...]  # those words, each with its position
    exposed: tuple[Value, ...]  # values at the start of a word, where a dash makes an option

    def render(self, item: Item) -> list[str]:
        """The argv for an item."""
        argv = list(self.fixed)
        for place, pieces in self.changing:
            word = "".join([piece if isinstance(piece, str) else piece(item) for piece in pieces])
            if len(word) > ALWAYS_SHORT or not word.isascii() or "\0" in word:
                _refuse_invalid(word, item)
            argv[place] = word
        return argv

    def check(self, columns: Collection[str] | None) -> None:
        """Refuse items that lack a column of the command."""
        for name in self.names:
            if columns is None or name not in columns:
                raise _no_column(name, columns)

    def risky(self, item: Item) -> bool:
        """Whether the command could mistake the item for an option: it begins with a dash."""
        return any(value(item).startswith("-") for value in self.exposed)


def parse(words: Sequence[str], shell: bool = False, append: bool = True) -> Template:
    """The template of a command or script. With `append`, the item is appended if there is no
    placeholder."""
    if isinstance(words, str):
        raise InvalidInput("a command must be a list of words, not a single string.")
    words = tuple(validate.text("the command", word) for word in words)
    if not words or not words[0].strip():
        raise InvalidInput("the command is empty.")
    if max(map(_size, words)) > MAX_WORD_LENGTH:
        raise InvalidInput(f"an argument is too long (maximum {MAX_WORD_LENGTH:,} bytes).")
    return _script(words, append) if shell else _command(words, append)


def as_text(value: Any) -> str:
    """A column's value as an argument: texts and numbers as they are, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    import json

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if is_utf8(text) else json.dumps(value, separators=(",", ":"))


def quote(text: str) -> str:
    """The text as one shell word, always quoted: a bare 2 in `{}>file` would redirect."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _command(words: tuple[str, ...], append: bool) -> Template:
    parsed = [_pieces(word) for word in words]
    uses_item = any(map(_changes, parsed))
    if append and not uses_item:
        parsed.append(_pieces("{}"))
    return Template(
        words,
        False,
        _names(words),
        uses_item,
        tuple("" if _changes(pieces) else "".join(map(str, pieces)) for pieces in parsed),
        tuple((place, pieces) for place, pieces in enumerate(parsed) if _changes(pieces)),
        tuple(_exposed_words(parsed)),
    )


def _script(words: tuple[str, ...], append: bool) -> Template:
    script = " ".join(words)
    pieces = _pieces(script)
    uses_item = _changes(pieces)
    if append and not uses_item:
        pieces = _pieces(_appendable(script) + " {}")
    _refuse_unquotable("".join(piece if isinstance(piece, str) else MARK for piece in pieces))
    return Template(
        words,
        True,
        _names((script,)),
        uses_item,
        ("/bin/sh", "-c", ""),
        ((2, tuple(piece if isinstance(piece, str) else _quoted(piece) for piece in pieces)),),
        tuple(_exposed_in_script(pieces)),
    )


def _appendable(script: str) -> str:
    script = script.rstrip()
    if script.endswith((";", "&", "|", "(")):
        raise InvalidInput("the script has no placeholder for the item: add {}.")
    return script


def _pieces(word: str) -> tuple[Piece, ...]:
    """A word's literal texts and the values between them."""
    pieces: list[Piece] = []
    end = 0
    for token in TOKEN.finditer(word):
        pieces += word[end : token.start()], _piece(token)
        end = token.end()
    pieces.append(word[end:])
    return tuple(piece for piece in pieces if piece != "")


def _piece(token: re.Match[str]) -> Piece:
    if token["name"] is not None:
        return _column(token["name"])
    if token["part"] is not None:
        return PARTS[token["part"]]
    return "{" if token["brace"] else token[0]


def _changes(pieces: tuple[Piece, ...]) -> bool:
    return not all(isinstance(piece, str) for piece in pieces)


def _names(words: tuple[str, ...]) -> tuple[str, ...]:
    names = (token["name"] for word in words for token in TOKEN.finditer(word))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _exposed_words(words: list[tuple[Piece, ...]]) -> Iterator[Value]:
    guarded = False
    for pieces in words:
        first = pieces[0] if pieces else ""
        if isinstance(first, str):
            guarded = pieces == ("--",)
        elif not guarded:
            yield first


def _exposed_in_script(pieces: tuple[Piece, ...]) -> Iterator[Value]:
    guarded, begins_word = False, True
    for piece in pieces:
        if isinstance(piece, str):
            guarded = piece.split()[-1:] == ["--"] or (guarded and piece.isspace())
            begins_word = piece[-1].isspace()
            continue
        if begins_word and not guarded:
            yield piece
        begins_word = False


def _base_name(item: Item) -> str:
    return posixpath.basename(item.text.rstrip("/")) or item.text[:1]


def _folder(item: Item) -> str:
    root = "/" if item.text.startswith("/") else "."
    return posixpath.dirname(item.text.rstrip("/")) or root


PARTS: dict[str, Value] = {
    "": lambda item: item.text,
    ".": lambda item: posixpath.splitext(item.text)[0],
    "/": _base_name,
    "//": _folder,
    "/.": lambda item: posixpath.splitext(_base_name(item))[0],
    "#": lambda item: str(item.number),
}


def _column(name: str) -> Value:
    def value(item: Item) -> str:
        if item.columns is None or name not in item.columns:
            raise _no_column(name, item.columns)
        return as_text(item.columns[name])

    return value


def _quoted(value: Value) -> Value:
    return lambda item: quote(value(item))


def _no_column(name: str, columns: Collection[str] | None) -> InvalidInput:
    if columns is None:
        return InvalidInput(
            f"{{{name}}} names a column, but the items have none (CSV and JSONL items do). For "
            f"the literal text write {{{{}}{name}}}."
        )
    known = ", ".join(column[:40] for column in list(columns)[:20])
    hint = f"choose from {known}" if known else "this item has no columns"
    return InvalidInput(f"unknown column {{{name}}} ({hint}).")


def _refuse_invalid(word: str, item: Item) -> None:
    """Refuse text that cannot be an argument of a program."""
    if "\0" in word:
        problem = "an argument cannot contain a NUL character"
    elif not is_name(word):
        problem = "its argument is not valid Unicode text"
    elif _size(word) > MAX_WORD_LENGTH:
        problem = f"too long for one argument: {_size(word):,} bytes (maximum {MAX_WORD_LENGTH:,})"
    else:
        return
    raise InvalidInput(f"item {item.number} ({item.text[:40]!r}): {problem}.")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


# The parts of a script that matter for quoting, in both dash and bash. What the two might read
# differently, or what needs a full parser to find its end, is `unclear`.
LEXEME = re.compile(
    r"""
      (?P<item> \0 )
    | (?P<continued> \\\n )
    | (?P<escaped> \\. )
    | (?P<quotes>
          '[^']*'
        | \$'(?: [^'\\] | \\[^'\\] )*'
        | "(?: [^"\\`$]
             | \\.
             | \$(?! [({\[\\] )
             | \$\{ [^'"\\`{}(]* \}
             | \$\(\( [^'"\\`()\#<]* \)\)
             | \$\((?!\() (?: (?!case) [^'"\\`()<\#{] )* \)
           )*"
      )
    | (?P<backticks> `[^`\\'"]*` )
    | (?P<expansion> \$\{ [^'"\\`{}(]* \} )
    | (?P<arithmetic> \$?\(\( (?: (?!<<) [^'"\\`()\#] )* \)\) )
    | (?P<unclear> ['"`] | \$['{\[] | \$?\(\( | << )
    | (?P<comment> \#[^\n]* )
    | (?P<dollar> \$ )
    | (?P<opened> [(<] )
    | (?P<closed> \) )
    | (?P<gap> [ \t\n;&|>] )
    | (?P<letter> . )
    """,
    re.VERBOSE | re.DOTALL,
)
WHERE = {
    "escaped": "after a backslash",
    "quotes": "inside quotes",
    "backticks": "inside backticks",
    "expansion": "inside ${…}",
    "arithmetic": "inside ((…))",
    "comment": "in a comment",
}


def _refuse_unquotable(script: str) -> None:
    """Refuse a script with a placeholder where quoting its value would not work."""
    at, last, before = 0, script.rfind(MARK), "gap"
    while at <= last:
        kind, end = _lexeme(script, at, before)
        if kind == "unclear":
            raise _unquotable(f"after {script[at : at + 10].replace(MARK, '{}')!r}")
        if kind == "item" and before == "dollar":
            raise _unquotable("after a dollar sign")
        if kind in WHERE and MARK in script[at:end]:
            raise _unquotable(WHERE[kind])
        at = end
        if kind != "continued":  # the shell joins the lines before it reads them
            before = kind


def _lexeme(script: str, at: int, before: str) -> tuple[str, int]:
    """The kind and the end of the part that begins at `at`, given the kind before it."""
    match = LEXEME.match(script, at)
    assert match is not None and match.lastgroup is not None
    kind, end = match.lastgroup, match.end()
    if kind == "continued" and before in ("dollar", "opened"):
        return "unclear", end  # it may hide a `$(` or a `<<`
    if kind != "comment" or before in ("gap", "opened"):
        return kind, end
    # Within a word `#` is a letter; whether a bracket ends a word depends on the word's start.
    return ("unclear" if before in ("closed", "arithmetic") else "letter"), at + 1


def _unquotable(where: str) -> InvalidInput:
    return InvalidInput(
        f"the script has a placeholder {where}, where it cannot be quoted safely. Remove the "
        f"quotes around it, because items are quoted automatically, or begin the script with "
        'item={}; and write "$item" after that.'
    )
