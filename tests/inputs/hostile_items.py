"""Items that a shell could interpret."""

from hypothesis import strategies as st

from hypervisor.inputs.template import parse

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NASTY = st.sampled_from(
    [
        "'",
        '"',
        "\\",
        "`",
        "$",
        "$(",
        "(",
        ")",
        "{",
        "}",
        ";",
        "&",
        "|",
        "<",
        ">",
        "\n",
        "\r",
        "\t",
        " ",
        "*",
        "?",
        "[a-z]",
        "~",
        "#",
        "!",
        "-",
        "--",
        "-n",
        "=",
        "%s",
        "\\'",
        "\\n",
        "$'",
        "é",
        "😀",
        "{}",
        "$(touch CANARY)",
        "`touch CANARY`",
        "\x01",
        "\x7f",
        "\x81",
        "\u2028",
    ]
)
ITEM = st.one_of(TEXT, st.lists(NASTY, max_size=8).map("".join))


def parse_script(*words):
    return parse(words, True)
