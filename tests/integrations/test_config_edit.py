"""An entry is added to a user's file and removed again, and every other character stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.integrations.config_edit import (
    drop_json,
    drop_toml,
    entry_line,
    put_json,
    put_toml,
    read_json,
    read_toml,
)

PATH = ("mcpServers", "hypervisor")
ENTRY = {"command": "/usr/bin/hv", "args": ["mcp"]}
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name not in PATH)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
INDENTS = st.sampled_from([None, 1, 2, 4, "\t"])


class TestJson:
    @given(OBJECTS, st.none() | OBJECTS, INDENTS, st.booleans(), st.sampled_from(["", "\n", " \n"]))
    def test_in_and_out_again_is_the_same_text(self, data, servers, indent, crlf, end):
        if servers is not None:
            data = {**data, "mcpServers": servers}
        text = json.dumps(data, indent=indent) + end
        if crlf and "\\" not in text:
            text = text.replace("\n", "\r\n")
        new = put_json(text, PATH, ENTRY)
        expected = {**data, "mcpServers": {**(servers or {}), "hypervisor": ENTRY}}
        assert read_json(new) == expected
        back = drop_json(new, PATH, servers is None)
        assert read_json(back) == data
        if data and servers != {}:
            assert back == text
        if crlf and "\r\n" in text:
            assert "\n" not in new.replace("\r\n", "")

    def test_only_lines_are_added(self):
        text = json.dumps({"theme": "dark", "mcpServers": {"other": {"command": "x"}}}, indent=4)
        before, after = text.splitlines(), put_json(text, PATH, ENTRY).splitlines()
        kept = iter(after)
        assert all(line in kept for line in before)
        assert after[3].startswith('        "hypervisor": {')

    def test_an_entry_is_changed_in_its_place(self):
        text = '{"mcpServers": {"a": 1, "hypervisor": {"command": "old"}, "b": 2}, "c": 3}'
        new = put_json(text, PATH, ENTRY)
        assert new == text.replace('{"command": "old"}', json.dumps(ENTRY))

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_nothing_becomes_a_file(self, text):
        assert read_json(put_json(text, PATH, ENTRY)) == {"mcpServers": {"hypervisor": ENTRY}}

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            "1",
            '{"a": 1,}',
            '{// note\n"a": 1}',
            '{"a": 1 /* x */}',
            "{'a': 1}",
            '{"mcpServers": []}',
            '{"mcpServers": null}',
            '{"mcpServers": {}, "mcpServers": {}}',
            '{"a": {"b": 1, "b": 2}}',
            "\ufeff{}",
            "[" * 100_000,
            '{"a": 1} trailing',
            "nonsense",
        ],
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(InvalidInput):
            put_json(text, PATH, ENTRY)


TOML = ("mcp_servers", "hypervisor")
FILES = [
    "",
    'model = "o3"\n',
    'model = "o3"  # mine\n\n[mcp_servers.other]\ncommand = "x"\n',
    "# only a comment",
    'model = "o3"\r\n\r\n[profiles.a]\r\nx = 1\r\n',
]


class TestToml:
    @pytest.mark.parametrize("text", FILES)
    def test_in_and_out_again(self, text):
        new = put_toml(text, TOML, ENTRY)
        assert new.startswith(text)
        assert read_toml(new)["mcp_servers"]["hypervisor"] == ENTRY
        back = drop_toml(new, TOML, ENTRY, "mcp_servers" not in read_toml(text))
        assert back.rstrip() == text.rstrip()
        assert put_toml(new, TOML, ENTRY) == new

    def test_a_table_is_changed_in_its_place(self):
        text = 'a = 1\n[mcp_servers.hypervisor]\ncommand = "old"\n\n# about b\n[b]\nc = 2\n'
        new = put_toml(text, TOML, ENTRY)
        assert new.startswith("a = 1\n[mcp_servers.hypervisor]\n")
        assert new.endswith("\n\n# about b\n[b]\nc = 2\n")

    @pytest.mark.parametrize(
        "text",
        [
            "a = ",
            "[a",
            'mcp_servers = { other = { command = "x" } }\n',
            '[mcp_servers."hypervisor"]\ncommand = "x"\n',
            "mcp_servers = 1\n",
            '[mcp_servers.hypervisor]\ncommand = "x"\n\nenv = {}\n',
            'a = """\n[mcp_servers.hypervisor]\n"""\n',
            '[mcp_servers.hypervisor]\ncommand = "x"\n[mcp_servers.hypervisor.env]\nA = "b"\n',
        ],
    )
    def test_what_cannot_be_changed_safely_is_refused(self, text):
        with pytest.raises(InvalidInput):
            put_toml(text, TOML, ENTRY)

    @pytest.mark.parametrize("after", ["\n# about b\n[b]\nc = 2\n", "# about b\n[b]\n"])
    def test_what_the_owner_wrote_after_the_table_stays(self, after):
        text = put_toml("a = 1\n", TOML, ENTRY) + after
        assert drop_toml(text, TOML, ENTRY, True) == "a = 1\n\n" + after
        changed = put_toml(text, TOML, {"command": "x", "args": [], "cwd": "/"})
        assert changed.endswith(after)

    def test_a_table_that_was_changed_stays(self):
        text = put_toml("", TOML, ENTRY).replace('"/usr/bin/hv"', '"mine"')
        with pytest.raises(InvalidInput):
            drop_toml(text, TOML, ENTRY, True)


def test_by_hand_is_what_would_have_been_written():
    assert read_json(entry_line("json", PATH, ENTRY)) == {"mcpServers": {"hypervisor": ENTRY}}
    assert read_toml(entry_line("toml", TOML, ENTRY)) == {"mcp_servers": {"hypervisor": ENTRY}}
