"""Receipts in a task file: all of them, once, in order; tampering is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files.markdown import parse, with_body_line, with_fields
from hypervisor.inputs.task_files.receipts_section import (
    receipt_line,
    receipt_problems,
    with_receipts,
)
from hypervisor.queue.receipt import GENESIS, ChainHead, Entry, seal

AT = 1_794_802_329_000  # 2026-11-16 04:12:09 UTC


def chain(*texts, name="c", actor="worker-17"):
    head, made = ChainHead(name, 0, GENESIS), []
    for n, text in enumerate(texts):
        made.append(seal(head, Entry("t", 1, actor, text), AT + n * 1000))
        head = ChainHead(name, made[-1].number, made[-1].hash)
    return made


FIVE = chain("one", "two", "three", "four", "five")
LINES = [receipt_line(each) for each in FIVE]
BODIES = {
    "empty": b"",
    "front matter only": b"---\na: 1\n---\n",
    "front matter without line end": b"---\na: 1\n---",
    "text": b"---\na: 1\n---\n\ntext\n",
    "no line end": b"text",
    "crlf": b"---\r\na: 1\r\n---\r\ntext\r\n",
    "old line ends": b"---\ra: 1\r---\rtext\r",
    "mark": b"\xef\xbb\xbftext\n",
    "not even text": b"\xff\xfe\x00 \n",
    "invalid yaml": b"---\na: [\n---\ntext\n",
    "section there": b"text\n\n## Receipts\n",
    "section there, no line end": b"text\n\n## Receipts",
    "section there with a note": b"## Receipts\n\nA note.",
    "section in the middle": b"text\n\n## Receipts\n\n## After\n\nmore\n",
    "section in the middle, tight": b"text\n## Receipts\n## After\nmore",
    "example in a code block": b"```\n## Receipts\n\n- x\n```\n",
    "open code block": b"text\n```\ncode\n",
}


def test_a_line_says_when_who_what_and_which():
    assert LINES[0] == (f"- 2026-11-16 04:12:09 · worker-17 · one · #1 {FIVE[0].hash[:12]}")


@pytest.mark.parametrize("name", BODIES)
class TestAppending:
    def test_one_by_one_or_all_at_once(self, name):
        before = BODIES[name]
        grown = before
        for n in range(1, 6):
            grown = with_receipts(grown, FIVE[:n])
            assert receipt_problems(grown, FIVE[:n]) == []
            assert with_receipts(grown, FIVE[:n]) == grown
        assert grown == with_receipts(before, FIVE)

    def test_everything_else_stays(self, name):
        before = BODIES[name]
        after = with_receipts(before, FIVE)
        assert [line for line in after.decode("latin-1").splitlines() if line.strip()] == [
            line for line in self._wanted(before.decode("latin-1")) if line.strip()
        ]
        end = b"\r\n" if b"\r\n" in before else b"\r" if b"\r" in before else b"\n"
        assert all(line.encode() + end in after for line in LINES)

    def _wanted(self, before):
        lines, new = before.splitlines(), [line.encode().decode("latin-1") for line in LINES]
        if "## Receipts" not in lines or "```" in lines:
            return [*lines, "## Receipts", *new]
        if "## After" in lines:
            place = lines.index("## After")
            return [*lines[:place], *new, *lines[place:]]
        return [*lines, *new]


def test_a_section_looks_like_this():
    after = with_receipts(b"---\na: 1\n---\n\nText.\n", FIVE[:2])
    assert after.decode() == (f"---\na: 1\n---\n\nText.\n\n## Receipts\n\n{LINES[0]}\n{LINES[1]}\n")
    assert with_receipts(b"x", []) == b"x"


def test_notes_of_people_stay_where_they_are():
    data = f"## Receipts\n\nNote 1\n\n{LINES[0]}\n> note 2\n{LINES[1]}\nnote 3".encode()
    after = with_receipts(data, FIVE)
    assert after.startswith(data) and receipt_problems(after, FIVE) == []
    assert after[len(data) :].decode() == "\n" + "\n".join(LINES[2:]) + "\n"


def test_a_section_below_stays_below():
    data = f"## Receipts\n\n{LINES[0]}\n\n## After\n\nmore\n".encode()
    after = with_receipts(data, FIVE[:2]).decode()
    assert after == f"## Receipts\n\n{LINES[0]}\n{LINES[1]}\n\n## After\n\nmore\n"


@given(st.sets(st.integers(0, 4)), st.sampled_from(sorted(BODIES)))
def test_what_is_missing_comes_back_in_its_place(gone, name):
    full = with_receipts(BODIES[name], FIVE)
    end = b"\r\n" if b"\r\n" in full else b"\r" if b"\r" in full else b"\n"
    cut = full
    for n in gone:
        cut = cut.replace(LINES[n].encode() + end, b"")
    missing = [p for p in receipt_problems(cut, FIVE) if "missing" in p]
    assert len(missing) == len(gone) == len(receipt_problems(cut, FIVE))
    healed = with_receipts(cut, FIVE)
    assert receipt_problems(healed, FIVE) == []
    if len(gone) < 5:
        assert healed == full


@given(st.integers(0, 400), st.integers(0, 40), st.sampled_from([b"\n", b"\r\n"]))
def test_a_torn_end_is_repaired(lost, zeros, end):
    """A power cut may truncate the last write anywhere, even inside a character, or zero it."""
    base = with_receipts(b"text" + end, FIVE[:2])
    full = with_receipts(base, FIVE)
    torn = full[: max(len(full) - lost, len(base))] + b"\0" * zeros
    healed = with_receipts(torn, FIVE)
    assert healed == full and receipt_problems(healed, FIVE) == []
    if not zeros:
        assert healed.startswith(torn), "so that appending is enough"


def test_half_a_line_that_is_not_a_receipt_stays():
    data = with_receipts(b"", FIVE[:2]) + b"- 2026-11-16 I was here"
    after = with_receipts(data, FIVE[:3])
    assert after.startswith(data + b"\n") and receipt_problems(after, FIVE[:3]) == []


TAMPERED = {
    "edited": (lambda s: s.replace("two", "tvo"), ["was edited"]),
    "time edited": (lambda s: s.replace("04:12:10", "05:12:10"), ["was edited"]),
    "number edited": (lambda s: s.replace("#2 ", "#9 "), ["was edited"]),
    "hash edited": (
        lambda s: s.replace(FIVE[1].hash[:12], "0123456789ab"),
        ["not in the store", "is missing"],
    ),
    "hash removed": (lambda s: s.replace(f" · #2 {FIVE[1].hash[:12]}", ""), ["is missing"]),
    "removed": (lambda s: s.replace(LINES[1] + "\n", ""), ["is missing"]),
    "all removed": (lambda s: "text", ["is missing"] * 5),
    "heading removed": (lambda s: s.replace("## Receipts", ""), ["is missing"] * 5),
    "repeated": (lambda s: s + LINES[1] + "\n", ["appears twice"]),
    "swapped": (
        lambda s: s.replace(LINES[1], "%").replace(LINES[2], LINES[1]).replace("%", LINES[2]),
        ["was moved"],
    ),
    "foreign": (lambda s: s + receipt_line(chain("x", name="d")[0]) + "\n", ["not in the store"]),
    "below another heading": (lambda s: s + "## More\n" + LINES[0] + "\n", ["appears twice"]),
    "below a second heading": (
        lambda s: s + "## Receipts\n" + receipt_line(chain("x", name="d")[0]) + "\n",
        ["not in the store"],
    ),
    "indented": (lambda s: s.replace(LINES[1], "  " + LINES[1]), ["is missing"]),
    "spaces behind": (lambda s: s.replace(LINES[1], LINES[1] + " "), ["was edited"]),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found(name):
    tamper, wanted = TAMPERED[name]
    data = with_receipts(b"text\n", FIVE).decode()
    changed = tamper(data)
    assert changed != data
    problems = receipt_problems(changed.encode(), FIVE)
    assert len(problems) == len(wanted)
    assert all(want in problem for want, problem in zip(wanted, problems, strict=True)), problems


def test_a_problem_names_its_line():
    data = with_receipts(b"---\r\na: 1\r\n---\r\n", FIVE).replace(b"two", b"tvo")
    line = 1 + next(n for n, text in enumerate(data.splitlines()) if b"tvo" in text)
    assert receipt_problems(data, FIVE) == [f"line {line}: #2 {FIVE[1].hash[:12]} was edited"]


HOSTILE = [
    "a\nb",
    "a\r\n- 2026-11-16 04:12:09 · x · y · #1 0123456789ab",
    "\n## Receipts\n",
    "\n# End",
    "x · #99 0123456789ab",
    "x · #99 0123456789ab\u2028",
    "<!-- hide",
    "--> <script>x</script>",
    "%% hide",
    "x" * 20_000,
    "·" * 600,
    "<" * 600,
    "\u202e desrever",
    "\x1b[2J",
    "\x85\x0b\x0c\x1c",
    "```",
    "~~~",
    "---",
    "  ",
    "-->",
    "a\0b",
    "😀" * 600,
    "\ud7ff\ufffe",
]


@pytest.mark.parametrize("where", ["text", "actor"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_on_its_line(text, where):
    texts = ["before", text if where == "text" else "x", "after"]
    receipts = chain(*texts, actor=text if where == "actor" else "w")
    for receipt in receipts:
        line = receipt_line(receipt)
        assert line.isprintable() and line.splitlines() == [line] and len(line) < 3000
        assert line.startswith("- 2026-11-16 04:12:")
        assert line.endswith(f" · #{receipt.number} {receipt.hash[:12]}")
        assert line.count("·") == 3 and "<!" not in line and "-->" not in line
    data = b""
    for n in range(1, 4):
        data = with_receipts(data, receipts[:n])
    assert data == with_receipts(b"", receipts)
    assert receipt_problems(data, receipts) == []
    assert len(data.splitlines()) == 5
    assert with_body_line(data, "[[p]]").endswith(data)


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4), st.text(max_size=60))
def test_any_text_of_receipt_and_body(texts, body):
    receipts = chain(*texts, actor=texts[-1])
    data = body.encode()
    try:
        grown = with_receipts(data, receipts[:1])
    except InvalidInput:
        assert body.lstrip("\ufeff").startswith("---")
        return
    assert grown.startswith(data)
    grown = with_receipts(grown, receipts)
    assert receipt_problems(grown, receipts) == [] and with_receipts(grown, receipts) == grown


def test_receipts_of_an_earlier_run_stay_above():
    earlier = chain("earlier", name="d")
    data = with_receipts(with_receipts(b"", earlier), FIVE)
    assert receipt_problems(data, [*earlier, *FIVE]) == []
    assert len(receipt_problems(data, FIVE)) == 1
    assert receipt_problems(data, FIVE, earlier) == receipt_problems(data, earlier, FIVE) == []
    assert receipt_problems(with_receipts(b"", FIVE), FIVE, earlier) == []
    edited = data.replace(b"earlier", b"later")
    assert ["was edited" in each for each in receipt_problems(edited, FIVE, earlier)] == [True]


def test_fields_and_receipts_do_not_meet():
    data = with_receipts(with_fields(b"text\n", {"status": "active"}), FIVE)
    after = with_fields(data, {"status": "done"})
    assert after == data.replace(b"active", b"done") and receipt_problems(after, FIVE) == []
    assert "## Receipts" in parse(after).body
    with pytest.raises(InvalidInput):
        with_receipts(b"---\nnever: closed\n", FIVE)
