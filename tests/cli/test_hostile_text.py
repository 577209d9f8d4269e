"""Hostile text in every field: stored unchanged or refused, and never dangerous to a terminal."""

import json

import apsw
import pytest

HOSTILE = {
    "escapes": "\x1b[31m\x1b]0;title\x07\x1b[2J\r\b\x7f\x9b31m",
    "shell": "$(rm -rf /) `reboot` ; | & > < \\ ' \" * ? ~ !",
    "sql": "'; DROP TABLE tasks; --",
    "formats": "%s %d %(x)s {} {0} {title} {{}} $HOME \\n \\x00",
    "json": '{"title": "inner", "x": [1, null]}',
    "html": "<script>alert(1)</script>&amp;<!--",
    "right to left": "abc \u202e\u2067 עברית \u200f x",
    "combining": "Z\u0351\u036b\u0343a\u030al\u0323go",
    "emoji": "👩‍👩‍👧 🚀 🇩🇪 \U0010ffff",
    "line breaks": "a\nb\r\nc\u2028d\u2029e\x85f\x0bg\x0ch",
    "spaces": "  \t leading and trailing \u00a0\u3000 ",
    "long word": "x" * 1000,
    "byte order mark": "\ufeffx",
    "noncharacter": "\ufffe\uffff\ufdd0",
    "like an id": "1q13dmzm50c0",
    "like a token": "1q13dmzm50c0.1.abcd",
    "like an option": "--json",
    "like a number": "-1",
    "like a path": "../../etc/passwd",
}


def assert_safe(out):
    """No control character but the ends of lines reaches a terminal."""
    assert all(line.isprintable() for line in out.replace("\u200d", "").split("\n")), repr(out)


def test_hostile_text_comes_back_as_it_went_in(hv):
    texts = list(HOSTILE.values())
    for text in texts:
        hv.ok(
            "add",
            f"--body={text}",
            f"--key={text}",
            f"--exclusive={text}",
            f"--data={json.dumps({text: [text]})}",
            "--",
            text,
        )
    leases = hv.json("claim", "--limit", str(len(texts)))
    assert [lease["task"]["title"] for lease in leases] == texts
    for lease, text in zip(leases, texts, strict=True):
        task = lease["task"]["id"]
        hv.ok("block", f"--unblock={text}", "--", lease["token"], text)
        shown = hv.json("show", task)
        kept = shown["detail"]["task"]
        for field in ("title", "body", "key", "reason", "unblock"):
            assert kept[field] == text, field
        assert kept["data"] == {text: [text]}
        assert shown["detail"]["exclusive"] == [text]
        assert_safe(hv.ok("show", task))
    for kind in ("escapes", "sql", "formats", "line breaks"):
        assert len(hv.json("ls", f"--text={HOSTILE[kind]}")) == 1
        assert_safe(hv("add", "again", f"--key={HOSTILE[kind]}").err)
    for command in ("ls", "events", "stats", "doctor"):
        assert_safe(hv.ok(command))


def test_hostile_receipts(hv):
    task, texts = hv.add("x"), list(HOSTILE.values())
    hv.ok("receipt", "add", task, "--", *texts)
    assert [line["text"] for line in hv.json("receipt", "ls", task)] == texts
    assert_safe(hv.ok("receipt", "ls", task))
    assert_safe(hv.ok("show", task))
    assert hv.json("receipt", "verify")[0]["problem"] is None


def test_hostile_text_as_a_result(hv):
    task = hv.add("x")
    texts = list(HOSTILE.values())
    hv.ok("done", hv.claim(), f"--result={json.dumps(texts)}")
    assert hv.json("ls")[0]["result"] == texts
    assert_safe(hv.ok("show", task))


@pytest.mark.parametrize("option", ["--type", "--branch", "--assignee", "--requires", "--batch"])
def test_hostile_names_are_kept_or_refused(hv, option):
    """Types, branches and such are names; names of batches may contain spaces."""
    for kind, text in HOSTILE.items():
        before = hv.content()
        code, _, err = hv("add", f"{option}={text}", "x")
        spaces = any(map(str.isspace, text)) and option != "--batch"
        assert code == (2 if spaces or not text.isprintable() or len(text) > 200 else 0), kind
        if code:
            assert hv.content() == before
            assert_safe(err)
        elif option == "--batch":
            assert hv.json("batches")[0]["name"] == text
        else:
            kept = hv.json("ls", "--limit", "1")[0][option[2:]]
            assert kept == ([text] if option == "--requires" else text)


def test_hostile_text_where_an_id_or_token_is_expected(hv):
    hv.add("x"), hv.add("y")
    for kind in ("escapes", "shell", "sql", "line breaks", "like a path"):
        text = HOSTILE[kind]
        for args in (
            ["show", "--", text],
            ["heartbeat", "--", text],
            ["cancel", "--", text],
            ["update", "--title=t", "--", text],
            ["release", "--force", "--", text],
            ["events", f"--task={text}"],
            ["ls", f"--before={text}"],
            ["ls", f"--batch={text}"],
            ["receipt", "ls", "--", text],
        ):
            result = hv(*args)
            assert result.code in (2, 4), (args, result)
            assert_safe(result.err)
            assert len(result.err.splitlines()) == 1


def test_invalid_utf8_in_every_argument(hv):
    bad = b"caf\xe9\xff"
    token = "0q13dmzm50c0.1.abcd"
    task = hv.add("x")
    for args in (
        ["add", bad],
        ["add", "x", "--body", bad],
        ["add", "x", "--key", bad],
        ["add", "x", "--type", bad],
        ["add", "x", "--branch", bad],
        ["add", "x", "--batch", bad],
        ["add", "x", "--assignee", bad],
        ["add", "x", "--requires", bad],
        ["add", "x", "--exclusive", bad],
        ["add", "x", "--after", bad],
        ["add", "--from", bad],
        ["add", "x", "--in", bad],
        ["ls", "--type", bad],
        ["ls", "--batch", bad],
        ["ls", "--branch", bad],
        ["ls", "--assignee", bad],
        ["ls", "--text", bad],
        ["ls", "--state", bad],
        ["ls", "--before", bad],
        ["ls", "--limit", bad],
        ["show", bad],
        ["claim", "--worker", bad],
        ["claim", "--batch", bad],
        ["claim", "--type", bad],
        ["claim", "--can", bad],
        ["claim", "--priority", bad],
        ["claim", "--lease", bad],
        ["done", bad],
        ["heartbeat", bad],
        ["fail", token, bad],
        ["block", token, bad],
        ["block", token, "why", "--unblock", bad],
        ["release", token, "--reason", bad],
        ["cancel", task, "--reason", bad],
        ["cancel", "--batch", bad],
        ["retry", bad],
        ["update", task, "--title", bad],
        ["update", task, "--body", bad],
        ["update", task, "--after", bad],
        ["receipt", "add", task, bad],
        ["receipt", "ls", bad],
        ["receipt", "verify", bad],
        ["stats", "--batch", bad],
        ["events", "--task", bad],
        [bad],
        ["ls", bad],
        ["run", bad],
        ["completion", bad],
    ):
        hv.refused(2, *args)


def test_half_characters_inside_json_are_kept(hv):
    task = hv.ok("add", "x", "--data", '["\\ud800", "\\u0000", "é"]').strip()
    assert hv.task(task)["data"] == ["\ud800", "\0", "é"]
    assert_safe(hv.ok("show", task))


def test_an_actor_with_control_characters(hv):
    task = hv.ok("add", "x", HV_ACTOR="\x1b[31m evil\n").strip()
    assert_safe(hv.ok("events"))
    hv.ok("receipt", "add", task, "seen", HV_ACTOR="\x1b[31m evil\n")
    assert_safe(hv.ok("receipt", "ls", task))


def test_json_has_no_control_characters(hv):
    hv.add("a\x9b31m\x7f\x85")
    out = hv.ok("ls", "--json")
    assert_safe(out)
    assert json.loads(out)[0]["title"] == "a\x9b31m\x7f\x85"


def test_a_title_is_found_by_its_own_letters(hv):
    hv.add("Ärger mit ÖL")
    for text in ("Ärger", "Ärger MIT", "ÖL", "rger mit"):
        assert len(hv.json("ls", "--text", text)) == 1, text
    assert hv.json("ls", "--text", "Aerger") == []


@pytest.mark.parametrize("args", [("status", b"\xff"), ("ls", "--store", b"\xff.db")])
def test_words_that_are_not_utf8(hv, args):
    hv.refused(2, *args)
    assert [path.name for path in hv.folder.iterdir()] == [".hypervisor"]


def test_receipts_that_were_changed_into_no_text(hv):
    task = hv.add()
    hv.ok("receipt", "add", task, "one")
    for value in ("CAST('r2' AS BLOB)", "CAST(x'ff41' AS TEXT)"):
        connection = apsw.Connection(str(hv.store))
        connection.execute(f"UPDATE receipts SET text = {value}")
        connection.close()
        answer = hv("receipt", "verify")
        assert answer.code == 8 and answer.err.startswith(f"hv: chain {task}: "), answer


def test_hostile_names_of_files_with_receipts(hv):
    tasks = hv.folder / "tasks"
    tasks.mkdir()
    path = tasks / "evil\x1b[31m\nname.md"
    path.write_text("---\nstatus: open\n---\nbody\n")
    hv(
        "run",
        "--items",
        "tasks",
        "--format",
        "tasks",
        "--write-back",
        "receipts",
        "--name",
        "ev",
        "--",
        "true",
    )
    (task,) = hv.json("ls", "--batch", "ev")
    hv.ok("receipt", "add", task["id"], "did it")
    path.write_text(path.read_text().replace("did it", "DID IT"))
    answer = hv("receipt", "verify")
    assert answer.code == 8
    assert_safe(answer.err)
