"""Front matter of every odd kind, and either parser of PyYAML."""

from __future__ import annotations

import pytest
import yaml

from hypervisor.inputs.task_files import front_matter

# Each line marked «…» is the value that the test replaces; everything around it must survive.
NASTY = {
    "plain": "---\nstatus: «active»\n---\nbody\n",
    "comments": "---\n# top\nstatus:   «active»  # why, ever\n  # odd\nb: 2 # end\n# last\n---\n",
    "crlf": "---\r\na: 1\r\nstatus: «active»\r\nb: 2\r\n---\r\nbody\r\n",
    "mixed line ends": "---\r\na: 1\nstatus: «active»\r\nb: 2\n---\nx\r\ny\rz",
    "old line ends": "---\ra: 1\rstatus: «active»\rb: 2\r---\rbody\r",
    "no trailing newline": "---\nstatus: «active»\n---\nbody",
    "ends with the mark": "---\nstatus: «active»\n---",
    "byte order mark": "\ufeff---\nstatus: «active»\n---\nbody\n",
    "mark and astral": "\ufeff---\n😀: 𝒳𝒴 # 𝔷\nstatus: «active» # 😀\nb: é\n---\n😀\n",
    "tabs": "---\na:\t1\nstatus:\t«active»\t# tab\t\n---\n\tcode\n",
    "marks in the body": "---\nstatus: «active»\n---\na\n---\nstatus: no\n---\n...\n",
    "dots end it": "---\nstatus: «active»\n...\nbody\n---\n",
    "spaces behind the marks": "--- \t\nstatus: «active»\n---\t \nbody\n",
    "double quotes": '---\na: "x"\nstatus: «"active"» # c\n---\n',
    "single quotes": "---\nstatus: «'active'»\nb: 'it''s'\n---\n",
    "quoted key": '---\n"status": «active»\n---\n',
    "quotes over lines": '---\nstatus: «"act\n  ive"»\nb: 1\n---\n',
    "literal": "---\nstatus: «|\n  one\n  # no comment\n\n  two»\n\n# comment\nb: 1\n---\n",
    "literal keeps": "---\nstatus: «|+\n  one»\n\n\nb: 1\n---\n",
    "folded last": "---\na: 1\nstatus: «>-\n  one\n  two»\n---\nbody",
    "plain over lines": "---\nstatus: «one\n  two\n  three»\nb: 1\n---\n",
    "flow list": "---\nstatus: «[a, 'b, c', # x\n  d]» # y\nb: 1\n---\n",
    "flow mapping": "---\nstatus: «{a: 1, b: [2]}»\nb: 1\n---\n",
    "all in flow": '---\n{a: 1, status: «active», "b":2}\n---\n',
    "json": '---\n{"a":[1],"status":«"active"»,"b":{"c":null}}\n---\n',
    "alias": "---\na: &x one\nstatus: «*x»\nb: *x\n---\n",
    "anchor elsewhere": "---\na: &x\n  - 1\nstatus: «active»\nb: *x\nc: {<<: {d: 1}}\n---\n",
    "merge": "---\nbase: &b {k: 1, status: old}\nstatus: «active»\n<<: *b\n---\n",
    "tag": "---\nstatus: «!!str 12»\nb: !custom {x: 1}\n---\n",
    "empty": "---\na: 1\nstatus:« »\nb: 2\n---\n",
    "empty with comment": "---\nstatus:« »# to do\nb: 2\n---\n",
    "null": "---\nstatus: «~» # none\n---\n",
    "indented": "---\n  a: 1\n  status: «active»\n  b: 2\n---\n",
    "explicit key": "---\n? status\n: «active»\n? b\n: 1\n---\n",
    "value on its own line": "---\nstatus:\n  «active» # here\nb: 1\n---\n",
    "looks like more": "---\na: 'status: 1'\nb: |\n  status: 2\nstatus: «active»\n---\nstatus: 3\n",
    "separators": '---\na: "x\u2028y\u0085z"\nstatus: «active»\nb: 1\n---\n\u2028\n',
}


def split(marked):
    head, _, rest = marked.partition("«")
    old, _, tail = rest.partition("»")
    return head, old, tail


def front(data):
    place = front_matter.find_front_matter(data)
    assert place is not None
    return place


@pytest.fixture(params=["C", "Python"], autouse=True)
def parser(request, monkeypatch):
    """With either parser of PyYAML: the one in C is not everywhere."""
    if request.param == "C":
        assert front_matter.loader() is yaml.CSafeLoader
    else:
        if "tabs" in request.node.name:
            pytest.skip("the parser in Python refuses tabs behind a colon")
        monkeypatch.delattr(yaml, "CSafeLoader")
        assert front_matter.loader() is yaml.SafeLoader
