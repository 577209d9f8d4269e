"""Hostile and broken input: stored and read back exactly, or refused in one line with no trace."""

import json

import pytest

BIG = "x" * 10_000_000


def test_ten_megabytes_are_too_much(hv):
    (hv.folder / "big").write_text(BIG)
    (hv.folder / "big.jsonl").write_text(json.dumps({"title": BIG}))
    (hv.folder / "data.jsonl").write_text(json.dumps({"title": "x", "more": BIG}))
    assert "10,000,000 characters" in hv.refused(2, "add", "x", "--body", "@big")
    assert "10,000,000 characters" in hv.refused(2, "add", "x", "--body", "@-", stdin=BIG)
    assert "10,000,000 characters" in hv.refused(2, "add", "--from", "big.jsonl")
    assert "too large" in hv.refused(2, "add", "--from", "data.jsonl")
    assert "10,000,000 characters" in hv.refused(2, "add", "--from", "-", stdin=BIG)
    assert "10,000,000 characters" in hv.refused(2, "add", "--from", "-", "-0", stdin=BIG)


def test_ten_megabytes_through_the_python_api(hv):
    import hypervisor

    hv.add("x")
    with hypervisor.open(hv.folder / ".hypervisor") as ledger:
        (lease,) = ledger.claim("me")
        before = hv.content()
        for call in (
            lambda: ledger.add([hypervisor.NewTask(BIG)]),
            lambda: ledger.add([hypervisor.NewTask("x", body=BIG)]),
            lambda: ledger.add([hypervisor.NewTask("x")], batch=BIG),
            lambda: ledger.complete(lease.token, BIG),
            lambda: ledger.receipt(lease.token, [BIG]),
            lambda: ledger.fail(lease.token, BIG),
            lambda: ledger.block(lease.token, "why", BIG),
            lambda: ledger.complete(BIG),
            lambda: ledger.show(BIG),
            lambda: ledger.claim(BIG),
        ):
            with pytest.raises(hypervisor.RequestError) as caught:
                call()
            assert len(str(caught.value)) < 500
        assert hv.content() == before


def test_large_but_allowed_text_comes_back(hv):
    body = "é" * 1_000_000
    task = hv.ok("add", "t" * 2000, "--body", "@-", stdin=body).strip()
    assert hv.task(task)["body"] == body


@pytest.mark.parametrize(
    "args",
    [
        ["ls", "--limit", "0"],
        ["ls", "--limit", "-1"],
        ["ls", "--limit", "1" * 30],
        ["ls", "--limit", "1" * 5000],
        ["ls", "--limit", "ten"],
        ["ls", "--limit", ""],
        ["ls", "--limit", "1.5"],
        ["ls", "--state", "unknown"],
        ["ls", "--state", ""],
        ["ls", "--priority", "urgent"],
        ["ls", "--before", "?"],
        ["ls", "--before", ""],
        ["events", "--limit", "0"],
        ["events", "--limit", "-1"],
        ["events", "--since", "-1"],
        ["events", "--since", str(2**70)],
        ["events", "--since", "x"],
        ["claim", "--limit", "0"],
        ["claim", "--limit", "-5"],
        ["claim", "--limit", "1001"],
        ["claim", "--lease", "0"],
        ["claim", "--lease=-5m"],
        ["claim", "--lease", "8d"],
        ["claim", "--lease", "soon"],
        ["claim", "--lease", ""],
        ["claim", "--lease", "nan"],
        ["claim", "--lease", "inf"],
        ["claim", "--lease", "1e400s"],
        ["claim", "--lease", "5y"],
        ["claim", "--lease", "5msm"],
        ["claim", "--pid", "x"],
        ["claim", "--pid", "-1"],
        ["claim", "--pid", str(2**40)],
        ["claim", "--pid", str(2**70)],
        ["claim", "--priority", "urgent"],
        ["claim", "--priority", ""],
        ["claim", "--worker", "two words"],
        ["claim", "--worker", "\n"],
        ["claim", "--type", ""],
        ["claim", "--can", "a b"],
        ["add", ""],
        ["add", " \t\n"],
        ["add", "\u3000"],
        ["add", "x", "--key", ""],
        ["add", "x", "--key", " "],
        ["add", "x", "--type", ""],
        ["add", "x", "--batch", ""],
        ["add", "x", "--retries", "-1"],
        ["add", "x", "--retries", "1001"],
        ["add", "x", "--retries", "x"],
        ["add", "x", "--at", "tomorrow"],
        ["add", "x", "--at", ""],
        ["add", "x", "--at", "1900-01-01"],
        ["add", "x", "--at", "2027-13-01"],
        ["add", "x", "--at", "0001-01-01"],
        ["add", "x", "--in", "99999999d"],
        ["add", "x", "--in", "x"],
        ["add", "x", "--data", "{"],
        ["add", "x", "--data", ""],
        ["add", "x", "--data", "NaN"],
        ["add", "x", "--data", "[-Infinity]"],
        ["add", "x", "--data", "[" * 5000],
        ["add", "x", "--data", "[" * 101 + "]" * 101],
        ["add", "x", "--data", "1" * 5000],
        ["add", "x", "--requires", "a b"],
        ["add", "x", "--requires", ""],
        ["add", "x", "--exclusive", " "],
        ["add", "x", "y"],
        ["add", "x", "--glob", "*"],
        ["add", "--from", "-", "--glob", "*"],
        ["add", "--from", ""],
        ["add", "--from", "-", "--data", "5"],
        ["add", "--from", "-", "--format", "xml"],
        ["add", "--from", "-", "--key", "k"],
        ["add", "--glob", "*", "--key", "k"],
        ["add", "x", "--in", "5m", "--at", "2090-01-01"],
        ["update", "1q13dmzm50c0", "--in", "5m", "--at", "2090-01-01"],
        ["heartbeat"],
        ["heartbeat", "x", "--lease", "0"],
        ["done"],
        ["fail", "x"],
        ["receipt"],
        ["receipt", "add"],
        ["receipt", "ls"],
        ["receipt", "nonsense"],
        ["completion", "tcsh"],
        ["completion"],
        ["--store"[:5], "ls"],
    ],
    ids=lambda args: " ".join(args)[:40],
)
def test_values_out_of_range_or_shape(hv, args):
    hv.refused(2, *args)


MALFORMED = [
    "",
    ".",
    "..",
    "x",
    "1q13dmzm50c0",
    "1q13dmzm50c0.",
    "1q13dmzm50c0.1",
    "1q13dmzm50c0.1.",
    "1q13dmzm50c0.x.abcd",
    "1q13dmzm50c0.-1.abcd",
    "1q13dmzm50c0.1.abcde",
    "1q13dmzm50c0.1.abc!",
    "1q13dmzm50cu.1.abcd",
    "1q13dmzm50c0.1.abcd.1",
    "q13.1.abcd",
    "1q13dmzm50c0.1.ab\nd",
    "1q13dmzm50c0.9999999999.abcd",
    "\x1b[31m.1.abcd",
    "1q13dmzm50c0 .1.abcd",
    "../../etc.1.abcd",
]


def test_malformed_tokens(hv):
    for token in MALFORMED:
        hv.refused(2, "done", "--", token)
    for token in MALFORMED[::5]:
        hv.refused(2, "heartbeat", "--", token)
        hv.refused(2, "fail", "--", token, "why")


def test_tokens_that_are_only_nearly_right(hv):
    hv.add("x")
    token = hv.claim()
    task, attempt, nonce = token.split(".")
    other = "0000" if nonce != "0000" else "1111"
    for wrong in (f"{task}.{attempt}.{other}", f"{task}.2.{nonce}", f"{task}.0.{nonce}"):
        for args in (
            ["done", wrong],
            ["heartbeat", wrong],
            ["release", wrong],
            ["fail", wrong, "x"],
            ["block", wrong, "x"],
            ["receipt", "add", wrong, "x"],
        ):
            hv.refused(6, *args)
    assert hv.ok("done", f" {token.upper()} ") == ""


def test_empty_reasons_and_receipts(hv):
    task = hv.add("x")
    token = hv.claim()
    for blank in ("", " \n\t"):
        hv.refused(2, "fail", token, blank)
        hv.refused(2, "block", token, blank)
        hv.refused(2, "receipt", "add", token, blank)
        hv.refused(2, "update", task, "--title", blank)
    hv.refused(2, "receipt", "add", token)
    hv.refused(2, "update", task)
    hv.refused(2, "receipt", "add", token, "fine", "")


def test_keys_that_look_like_ids_and_ids_that_look_like_keys(hv):
    first = hv.add("first", "--key", "plain")
    impostor = hv.add("impostor", "--key", first)
    by_key = hv.add("x", "--after", first)
    assert hv.json("show", by_key)["detail"]["after"] == [impostor]  # a key comes first
    assert hv.json("show", first)["detail"]["task"]["title"] == "first"
    other = hv.ok("add", "y", "--after", first, "--batch", "b").strip()
    assert hv.json("show", other)["detail"]["after"] == [first]  # no such key in that batch


def test_a_batch_named_like_an_id(hv):
    task = hv.add("x")
    hv.add("y", "--batch", task)
    assert [t["title"] for t in hv.json("ls", "--batch", task)] == ["y"]
    assert hv.task(task)["title"] == "x"


def test_too_many_names(hv):
    options = [f"--requires=c{n}" for n in range(101)]
    assert "(maximum 100)" in hv.refused(2, "add", "x", *options)
    options = [f"--exclusive=c{n}" for n in range(101)]
    assert "(maximum 100)" in hv.refused(2, "add", "x", *options)


@pytest.mark.parametrize("verb", ["ls", "status", "doctor", "add"])
def test_a_deeply_nested_config_is_refused(hv, verb):
    config = hv.store.parent / "config.toml"
    config.write_text("a = " + "[" * 100_000 + "]" * 100_000)
    words = ["add", "a task"] if verb == "add" else [verb]
    assert "nested too deeply" in hv.refused(2, *words)
