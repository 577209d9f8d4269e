"""Reading the front matter of a Markdown file: its position and its values.

Values are plain: what JSON can hold, dates as ISO text, keys as text. Files may come from
anywhere, so YAML that would expand, nest or repeat without end is refused before it is built.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Node = Any  # of yaml, whose types do not tell the kinds of nodes apart
MAX_FRONT_LENGTH = 256 * 1024
MAX_LEVELS = 100
ALWAYS_SHALLOW = 500  # this many indicators cannot overflow the C parser's stack
MAX_NUMBER_LENGTH = 300
BOM = b"\xef\xbb\xbf"
BREAK = re.compile(r"\r\n|\n|\r")
OPENING = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*(?:\r\n|\n|\r)")
CLOSING = re.compile(rb"[\r\n](?:---|\.\.\.)[ \t]*(?:\r\n|\n|\r|\Z)")
TAG = "tag:yaml.org,2002:"
DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
WITH_BASE = re.compile(r"[-+]?0[bx][0-9a-fA-F_]+\Z")
UNCHANGED = "The file was not changed; correct it and try again."


class Bounds(NamedTuple):
    """Offsets in bytes: of the text between the two marks, and of the body after them."""

    start: int
    end: int
    body: int


def find_front_matter(data: bytes) -> Bounds | None:
    """Where the front matter is, or None."""
    opening = OPENING.match(data)
    if opening is None:
        return None
    closing = CLOSING.search(data, opening.end() - 1)
    if closing is None:
        raise InvalidInput(f"line 1: front matter is not closed. {UNCHANGED}")
    end = closing.start() + 1
    if end - opening.end() > MAX_FRONT_LENGTH:
        raise InvalidInput(
            f"the front matter is larger than {MAX_FRONT_LENGTH // 1024} KB. {UNCHANGED}"
        )
    return Bounds(opening.end(), end, closing.end())


def decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = 1 + len(BREAK.findall(data[: error.start].decode("latin-1")))
        raise InvalidInput(f"line {line}: not valid UTF-8. {UNCHANGED}") from None


class FrontMatter:
    """The front matter of a file, as text and as nodes with their positions in it.

    The text begins with the line break of the opening mark, so that a byte order mark does not
    shift offsets, and line numbers are those in the file."""

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
        return InvalidInput(f"line {self.line(index)}: {why}. {UNCHANGED}")

    def pairs_of(self, node: Node) -> tuple[dict[str, tuple[Node, Node]], list[Node]]:
        """Keys with their values, and merged nodes; a duplicate key is refused."""
        pairs: dict[str, tuple[Node, Node]] = {}
        merged: list[Node] = []
        for key, value in node.value:
            at = key.start_mark.index
            if key.id != "scalar":
                raise self.refused(at, "a key must be a single value, not a list or a mapping")
            if key.tag == TAG + "merge":
                merged.append(value)
            elif key.value in pairs:
                raise self.refused(at, f"duplicate key {key.value[:60]!r}")
            else:
                pairs[key.value] = (key, value)
        return pairs, merged

    def _mapping(self) -> Node | None:
        root = self._composed()
        if root is None or root.id == "mapping":
            return root
        raise self.refused(root.start_mark.index, "the front matter is not a list of `key: value`")

    def _composed(self) -> Node | None:
        import yaml

        try:
            if sum(self.text.count(indicator) for indicator in "[{-?:") > ALWAYS_SHALLOW:
                self._refuse_deep()
            return yaml.compose(self.text, Loader=loader())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            why = error.problem or error.context or "not valid YAML"
            at = len(self.text) if mark is None else mark.index
            raise self.refused(at, f"not valid YAML: {why}") from None
        except yaml.YAMLError:
            match = yaml.reader.Reader.NON_PRINTABLE.search(self.text)
            at = match.start() if match else 0
            raise self.refused(at, "not valid YAML: a character that is not allowed") from None

    def _refuse_deep(self) -> None:
        import yaml

        depth = 0
        for event in yaml.parse(self.text, Loader=loader()):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_LEVELS:
                    at = event.start_mark.index if event.start_mark else 0
                    raise self.refused(at, "nested too deeply")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1


@lru_cache(maxsize=4)
def parse_front_matter(inner: str) -> FrontMatter:
    """Cached, because a file is often changed right after it is read."""
    return FrontMatter(inner)


class Values:
    """Makes plain values of nodes, within a budget that counts every repetition by an alias."""

    def __init__(self, front: FrontMatter) -> None:
        self._front = front
        self._left = 2 * MAX_FRONT_LENGTH  # more than a text without aliases can use
        self._open: list[Node] = []

    def of(self, node: Node) -> Any:
        self._left -= 1 + (len(node.value) if node.id == "scalar" else 0)
        if self._left < 0:
            raise self._refused(node, "aliases repeat too much")
        if node.id == "scalar":
            return scalar_value(node)
        if any(parent is node for parent in self._open):
            raise self._refused(node, "an alias refers to itself")
        if len(self._open) >= MAX_LEVELS:
            raise self._refused(node, "nested too deeply")
        self._open.append(node)
        value = self._mapping(node) if node.id == "mapping" else [self.of(n) for n in node.value]
        self._open.pop()
        return value

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
    """The value of a scalar. What Python or JSON cannot hold, and what YAML 1.1 would turn into
    an unintended number (`12:30`, `007`), stays text."""
    text, kind = str(node.value), node.tag.removeprefix(TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    if kind == "int" and len(text) <= MAX_NUMBER_LENGTH:
        if DECIMAL.match(text):
            return int(text.replace("_", ""))
        if WITH_BASE.match(text):
            return _number(text, lambda digits: int(digits, 0))
    elif kind == "float" and ":" not in text and len(text) <= MAX_NUMBER_LENGTH:
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
        moment = SafeConstructor().construct_yaml_timestamp(node)
        return str(moment.isoformat())
    except (ValueError, OverflowError, AttributeError, ConstructorError):
        return str(node.value)


def loader() -> Any:
    """The parser written in C if PyYAML has it: ten times as fast."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
