"""Reading the front matter of a Markdown file: where it is, and what it says.

Nothing here changes anything. Values are plain: what JSON can hold, dates as ISO text,
keys as text. What YAML would expand, nest or repeat without end is refused before it is
built, since files come from anywhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

Node = Any  # of yaml: what tells the kinds apart is missing in its types
LONGEST_FRONT = 256 * 1024
MOST_LEVELS = 100
SURELY_SHALLOW = 500  # so few indicators cannot nest deep enough to overflow the C parser's stack
LONGEST_NUMBER = 300
BOM = b"\xef\xbb\xbf"
BREAK = re.compile(r"\r\n|\n|\r")
OPENING = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*(?:\r\n|\n|\r)")
CLOSING = re.compile(rb"[\r\n](?:---|\.\.\.)[ \t]*(?:\r\n|\n|\r|\Z)")
TAG = "tag:yaml.org,2002:"
DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
WITH_BASE = re.compile(r"[-+]?0[bx][0-9a-fA-F_]+\Z")
LEFT_AS_IS = "The file was left as it is; correct it and try again."


class Bounds(NamedTuple):
    """Offsets in bytes: of the text between the two marks, and of the body behind them."""

    start: int
    end: int
    body: int


def find_front_matter(data: bytes) -> Bounds | None:
    """Where the front matter is; None if there is none."""
    opening = OPENING.match(data)
    if opening is None:
        return None
    closing = CLOSING.search(data, opening.end() - 1)
    if closing is None:
        raise InvalidInput(f"line 1: front matter is opened here and never closed. {LEFT_AS_IS}")
    end = closing.start() + 1
    if end - opening.end() > LONGEST_FRONT:
        raise InvalidInput(
            f"the front matter is larger than {LONGEST_FRONT // 1024} KB. {LEFT_AS_IS}"
        )
    return Bounds(opening.end(), end, closing.end())


def decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = 1 + len(BREAK.findall(data[: error.start].decode("latin-1")))
        raise InvalidInput(f"line {line}: this is no UTF-8 text. {LEFT_AS_IS}") from None


class FrontMatter:
    """The front matter of one file, as text and as nodes that know their place in it.

    The text begins with the line break of the opening mark, so that offsets cannot be
    shifted by a byte order mark, and a line's number is that in the file."""

    def __init__(self, inner: str) -> None:
        self.text = "\n" + inner
        self._fields: dict[str, Any] | None = None
        self.root = self._mapping()
        self.pairs: dict[str, tuple[Node, Node]] = {}
        self.merged: list[Node] = []
        if self.root is not None:
            self.pairs, self.merged = self.pairs_of(self.root)

    def fields(self) -> dict[str, Any]:
        if self._fields is None:
            self._fields = {} if self.root is None else Values(self).of(self.root)
        return dict(self._fields)

    def line(self, index: int) -> int:
        return 1 + len(BREAK.findall(self.text, 0, max(index, 0)))

    def refused(self, index: int, why: str) -> InvalidInput:
        return InvalidInput(f"line {self.line(index)}: {why}. {LEFT_AS_IS}")

    def pairs_of(self, node: Node) -> tuple[dict[str, tuple[Node, Node]], list[Node]]:
        """Keys with their values, and what is merged in; a key that comes twice is refused."""
        pairs: dict[str, tuple[Node, Node]] = {}
        merged: list[Node] = []
        for key, value in node.value:
            at = key.start_mark.index
            if key.id != "scalar":
                raise self.refused(at, "a key must be a single value, not a list or a mapping")
            if key.tag == TAG + "merge":
                merged.append(value)
            elif key.value in pairs:
                raise self.refused(at, f"the key {key.value[:60]!r} is there twice")
            else:
                pairs[key.value] = (key, value)
        return pairs, merged

    def _mapping(self) -> Node | None:
        root = self._composed()
        if root is None or root.id == "mapping":
            return root
        raise self.refused(root.start_mark.index, "the front matter is no list of `key: value`")

    def _composed(self) -> Node | None:
        import yaml

        try:
            if sum(self.text.count(each) for each in "[{-?:") > SURELY_SHALLOW:
                self._refuse_deep()
            return yaml.compose(self.text, Loader=loader())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            why = error.problem or error.context or "this is no YAML"
            at = len(self.text) if mark is None else mark.index
            raise self.refused(at, f"no valid YAML: {why}") from None
        except yaml.YAMLError:
            found = yaml.reader.Reader.NON_PRINTABLE.search(self.text)
            at = found.start() if found else 0
            raise self.refused(at, "no valid YAML: a character that is not allowed") from None

    def _refuse_deep(self) -> None:
        import yaml

        depth = 0
        for event in yaml.parse(self.text, Loader=loader()):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MOST_LEVELS:
                    at = event.start_mark.index if event.start_mark else 0
                    raise self.refused(at, "nested too deeply")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1


@lru_cache(maxsize=4)
def parse_front_matter(inner: str) -> FrontMatter:
    """What was read a moment ago need not be read again to be changed."""
    return FrontMatter(inner)


class Values:
    """Makes plain values of nodes; whatever aliases repeat counts every time."""

    def __init__(self, front: FrontMatter) -> None:
        self._front = front
        self._left = 2 * LONGEST_FRONT  # what a text without aliases can never use up
        self._open: list[Node] = []

    def of(self, node: Node) -> Any:
        self._left -= 1 + (len(node.value) if node.id == "scalar" else 0)
        if self._left < 0:
            raise self._refused(node, "aliases repeat too much")
        if node.id == "scalar":
            return scalar_value(node)
        if any(each is node for each in self._open):
            raise self._refused(node, "an alias contains itself")
        if len(self._open) >= MOST_LEVELS:
            raise self._refused(node, "nested too deeply")
        self._open.append(node)
        made = self._mapping(node) if node.id == "mapping" else [self.of(n) for n in node.value]
        self._open.pop()
        return made

    def _mapping(self, node: Node) -> dict[str, Any]:
        pairs, merged = self._front.pairs_of(node)
        made = {key: self.of(value) for key, (_, value) in pairs.items()}
        for source in self._sources(merged):
            for key, value in self.of(source).items():
                made.setdefault(key, value)
        return made

    def _sources(self, merged: list[Node]) -> Iterator[Node]:
        for node in merged:
            for source in node.value if node.id == "sequence" else [node]:
                if source.id != "mapping":
                    raise self._refused(source, "only mappings can be merged with `<<`")
                yield source

    def _refused(self, node: Node, why: str) -> InvalidInput:
        return self._front.refused(node.start_mark.index, why)


def scalar_value(node: Node) -> Any:
    """A scalar's value. What Python or JSON could not hold, or YAML 1.1 would turn into a
    number that nobody meant (`12:30`, `007`), stays the text it is."""
    text, kind = str(node.value), node.tag.removeprefix(TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    if kind == "int" and len(text) <= LONGEST_NUMBER:
        if DECIMAL.match(text):
            return int(text.replace("_", ""))
        if WITH_BASE.match(text):
            return _number(text, lambda digits: int(digits, 0))
    elif kind == "float" and ":" not in text and len(text) <= LONGEST_NUMBER:
        return _number(text, float)
    elif kind == "timestamp":
        return _moment(node)
    return text


def _number(text: str, make: Any) -> Any:
    try:
        number = make(text.replace("_", ""))
    except ValueError:  # `.inf` and `.nan`, or a tag that does not fit the text
        return text
    return number if abs(number) < float("inf") else text


def _moment(node: Node) -> str:
    from yaml.constructor import ConstructorError, SafeConstructor

    try:
        made = SafeConstructor().construct_yaml_timestamp(node)
        return str(made.isoformat())
    except (ValueError, OverflowError, AttributeError, ConstructorError):
        return str(node.value)


def loader() -> Any:
    """The parser written in C where PyYAML has it: ten times as quick."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
