"""Command templates: each placeholder, literal braces, items that look like options."""

import os
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import MAX_WORD_LENGTH, Item, as_text, parse
from tests.inputs.hostile_items import ITEM, TEXT, parse_script

AWKWARD = ["a.b/c", ".bashrc", "a/b/", "/a", "/", "x.tar.gz", "a.", "..", "a/.b", "//", "no", "é.ü"]


def one(word, text, number=1, columns=None):
    """The single word of a command, for an item."""
    (program, word) = parse(["program", word]).render(Item(text, number, columns))
    assert program == "program"
    return word


@pytest.mark.parametrize(
    "placeholder, results",
    [
        ("{}", AWKWARD),
        (
            "{.}",
            ["a.b/c", ".bashrc", "a/b/", "/a", "/", "x.tar", "a", "..", "a/.b", "//", "no", "é"],
        ),
        ("{/}", ["c", ".bashrc", "b", "a", "/", "x.tar.gz", "a.", "..", ".b", "/", "no", "é.ü"]),
        ("{//}", ["a.b", ".", "a", "/", "/", ".", ".", ".", "a", "/", ".", "."]),
        ("{/.}", ["c", ".bashrc", "b", "a", "/", "x.tar", "a", "..", ".b", "/", "no", "é"]),
        ("{#}", ["7"] * len(AWKWARD)),
    ],
)
def test_each_placeholder(placeholder, results):
    assert [one(placeholder, text, 7) for text in AWKWARD] == results


@given(st.text("ab./") | TEXT)
def test_extensions_are_those_of_python(text):
    assert one("{.}", text) == os.path.splitext(text)[0]
    assert one("{/.}", text) == os.path.splitext(one("{/}", text))[0]


def test_several_in_one_word_and_text_around_them():
    item = Item("in/a b.jpg", 3)
    template = parse(["convert", "{}", "-o", "out/{#}-{/.}.png", "{//}{//}", "{}{}"])
    assert template.render(item) == [
        "convert",
        "in/a b.jpg",
        "-o",
        "out/3-a b.png",
        "inin",
        "in/a b.jpgin/a b.jpg",
    ]
    assert template.uses_item and template.names == ()
    assert template.render(item) == template.render(item)


def test_the_program_itself_may_be_the_item():
    assert parse(["{}", "--version"]).render(Item("gcc")) == ["gcc", "--version"]


@pytest.mark.parametrize("words", [["ruff", "check"], ["echo", "{a,b}", "{ }"], ["x", "{{}}"]])
def test_an_item_nobody_asks_for_becomes_the_last_argument(words):
    template = parse(words)
    assert not template.uses_item
    assert template.render(Item("a b"))[-1] == "a b"
    assert len(template.render(Item("a b"))) == len(words) + 1


@pytest.mark.parametrize(
    "shell, argv",
    [
        (False, ["sort", "-u"]),
        (True, ["/bin/sh", "-c", "sort -u"]),
    ],
)
def test_an_item_that_goes_elsewhere_is_not_appended(shell, argv):
    template = parse(["sort", "-u"], shell, append=False)
    assert template.render(Item("-a")) == argv and not template.risky(Item("-a"))
    assert not template.uses_item
    assert parse(["sort", "{}"], append=False).render(Item("a")) == ["sort", "a"]


def test_the_number_alone_counts_as_asking():
    assert parse(["echo", "{#}"]).render(Item("a", 5)) == ["echo", "5"]


@pytest.mark.parametrize(
    "literal",
    [
        "{a,b}",
        "{ }",
        "{print $1}",
        '{"a":1}',
        "{1}",
        "{1..3}",
        "{a b}",
        "{-a}",
        "{}"[:1],
        "}",
        "}{",
        "{...}",
        "{///}",
        "{./}",
        "{##}",
        "{é}",
        "",
        "%s",
        "\\",
        "${HOME}",
        "${HOME:-x}",
        "{{name}}",
        "{{.}}",
        "{{.Name}}",
        "{{range .}}{{.}}{{end}}",
        "{{{name}}}",
        "${{ github.ref }}",
        "${{name}}",
        "{\n}",
    ],
)
def test_other_braces_stay_as_they_are(literal):
    assert parse(["x", literal, "{}"]).render(Item("a")) == ["x", literal, "a"]


@pytest.mark.parametrize(
    "word, result",
    [
        ("{{}}", "{}"),
        ("{{}name}", "{name}"),
        ("{{}.}", "{.}"),
        ("{{}{}}", "{a}"),
        ("{{{}}}", "{{}}"),
        ("{{}", "{"),
        ("x{{}}{}", "x{}a"),
        ("{{#}", "{1"),
        ("{#}}", "1}"),
        ('{"id":{#}}', '{"id":1}'),
        ("${}", "$a"),
        ("{{}}{{}}", "{}{}"),
    ],
)
def test_how_to_write_a_literal_brace(word, result):
    assert parse(["x", word, "{}"]).render(Item("a")) == ["x", result, "a"]


@pytest.mark.parametrize(
    "value, text",
    [
        ("a b", "a b"),
        ("", ""),
        (5, "5"),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        ([1, "ä"], '[1,"ä"]'),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        (["\ud800"], '["\\ud800"]'),
    ],
)
def test_columns_of_every_kind(value, text):
    assert as_text(value) == text
    assert one("<{first_name-2}>", "x", columns={"first_name-2": value}) == f"<{text}>"


def test_the_names_it_needs_once_each_in_order():
    template = parse(["x", "{b}/{a}", "{b}", "{{c}}", "${d}"])
    assert template.names == ("b", "a") and template.uses_item
    assert parse_script("echo {b} ${d}").names == ("b",)


def test_columns_that_are_not_there():
    template = parse(["x", "{size}"])
    template.check(["size"])
    template.check({"size": 1, "more": 2})
    parse(["x", "{}"]).check(None)
    with pytest.raises(InvalidInput, match=r"unknown column \{size\} \(choose from a, b\)"):
        template.check({"a": 1, "b": 2})
    with pytest.raises(InvalidInput, match=r"this item has no columns"):
        template.render(Item("x", 1, {}))
    for refuse in (lambda: template.check(None), lambda: template.render(Item("x"))):
        with pytest.raises(InvalidInput, match=r"the items have none.*write \{\{\}size\}\."):
            refuse()


@pytest.mark.parametrize(
    "words, text, risky",
    [
        (["rm", "{}"], "-rf", True),
        (["rm", "{}"], "a", False),
        (["rm"], "-rf", True),
        (["rm", "--"], "-rf", False),
        (["rm", "--", "{}"], "-rf", False),
        (["rm", "--", "{.}", "{}"], "-rf", False),
        (["sudo", "--", "rm", "{}"], "-rf", True),
        (["rm", "./{}"], "-rf", False),
        (["rm", "{}.bak"], "-rf", True),
        (["rm", "{/}"], "folder/-rf", True),
        (["rm", "{/}"], "-f/a", False),
        (["rm", "{#}"], "-rf", False),
        (["rm", "", "{}"], "-rf", True),
    ],
)
def test_items_that_could_be_taken_for_options(words, text, risky):
    assert parse(words).risky(Item(text)) is risky
    assert parse_script(" ".join(words)).risky(Item(text)) is risky


def test_columns_that_could_be_taken_for_options():
    assert parse(["rm", "{a}"]).risky(Item("x", 1, {"a": "-rf"}))
    assert parse(["x", "{a}"]).risky(Item("x", 1, {"a": -5}))


@pytest.mark.parametrize(
    "words",
    [
        [],
        [""],
        ["  "],
        "echo {}",
        ["a\0b"],
        ["a", "\ud800"],
        ["a", 5],
        ["x" * 131_072],
    ],
)
@pytest.mark.parametrize("shell", [False, True])
def test_what_is_not_a_command(words, shell):
    with pytest.raises(InvalidInput):
        parse(words, shell)


@pytest.mark.parametrize("words, shell", [(["x", "a{}"], False), (["x {}"], True)])
def test_items_that_no_argument_can_hold(words, shell):
    template = parse(words, shell)
    with pytest.raises(InvalidInput, match=r"^item 7 \('b\\x00c'\): .* NUL character\.$"):
        template.render(Item("b\0c", 7))
    with pytest.raises(InvalidInput, match=r"^item 7 .* not valid Unicode text\.$"):
        template.render(Item("b\ud800", 7))
    with pytest.raises(InvalidInput, match=r"^item 7 \('x{40}'\): too long .*131,071\)\.$"):
        template.render(Item("x" * 131_071, 7))
    with pytest.raises(InvalidInput, match="too long"):
        template.render(Item("é" * 65_536, 7))
    assert template.render(Item("é" * 65_000, 7))


def test_the_longest_argument_is_one_that_linux_takes():
    (_, word) = argv = parse(["/bin/true", "{}"]).render(Item("x" * MAX_WORD_LENGTH))
    assert subprocess.run(argv, timeout=180).returncode == 0
    with pytest.raises(OSError):
        subprocess.run(["/bin/true", word + "x"], timeout=180)


@given(ITEM)
@example("-n")
@example("{}")
@example("{{}}%s{name}")
def test_no_item_is_changed_and_none_becomes_two(text):
    assert parse(["x", "{}"]).render(Item(text)) == ["x", text]
    assert parse(["x"]).render(Item(text)) == ["x", text]
    assert one("a{}b", text) == f"a{text}b"
    assert one("{c}", "x", columns={"c": text}) == text


@given(st.lists(st.one_of(st.text(), ITEM), max_size=4), st.booleans(), ITEM)
def test_any_words_are_parsed_or_refused(words, shell, text):
    try:
        template = parse(words, shell)
        argv = template.render(Item(text, 1, dict.fromkeys(template.names, text)))
    except InvalidInput as error:
        assert str(error)
        return
    assert argv and all("\0" not in word for word in argv)
    assert len(argv) == (3 if shell else len(words) + (not template.uses_item))
