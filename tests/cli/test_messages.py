"""Messages that once were wrong, or left people without a next step."""

import os
import pwd

import pytest

from hypervisor.core.errors import EXIT_CODES


def test_an_id_with_a_letter_that_no_id_has(hv):
    result = hv("show", "question")
    assert result.code == EXIT_CODES["invalid_input"]
    assert result.err == "hv: invalid id 'question' (ids look like 1q13f94q6bkk).\n"


@pytest.mark.parametrize("command", ["retry", "cancel", "kill"])
def test_a_word_that_is_neither_task_nor_batch(hv, command):
    hv.add("x", "--batch", "review")
    for word in ("reveiw", "queue"):
        result = hv(command, word)
        assert result.code == EXIT_CODES["not_found"]
        assert result.err == f"hv: no task or batch '{word}'; to list them: hv ls, hv batches\n"
    assert "at least 4 characters" in hv.refused(2, command, "3")


def test_ids_and_a_filter_together(hv):
    task = hv.add("x", "--batch", "b")
    refused = hv.refused(2, "cancel", task, "--state", "ready")
    assert "give either ids or --state" in refused and "not both" in refused
    assert hv.task(task)["state"] == "active"


def test_retry_of_what_is_queued_names_commands(hv):
    task = hv.add("x")
    result = hv("retry", task)
    assert result.code == EXIT_CODES["wrong_state"]
    assert f"cannot retry {task}: it is ready. Nothing was changed" in result.err
    assert result.err.endswith(f"; try `hv cancel {task}`.\n")


@pytest.mark.parametrize("port", ["80000", "-1", "65536"])
def test_a_port_out_of_range(hv, port):
    result = hv("serve", "--port", port)
    assert result.code == EXIT_CODES["invalid_input"]
    assert f"invalid port '{port}' (use 0 to 65535)" in result.err
    assert not (hv.folder / ".hypervisor" / "serve.token").exists()


def test_the_actor_without_variables_is_the_login_name(hv):
    hv.env.pop("HV_ACTOR")
    task = hv.add("x")
    assert task in hv.ok("events")
    assert hv.ok("events").split()[-1] == pwd.getpwuid(os.getuid()).pw_name


def test_a_claim_from_outside_that_is_killed(hv):
    task = hv.add("x")
    hv.claim()
    result = hv("kill", task)
    assert result.code == EXIT_CODES["wrong_state"]
    assert f"`hv cancel {task}`" in result.err
    assert f"`hv release --force {task}`" in result.err
    hv.ok("release", "--force", task)


def test_show_says_how_many_retries_are_left(hv):
    task = hv.add("x", "--retries", "1")
    hv.ok("fail", hv.claim(), "no luck", "--retry-in", "0s")
    assert "  tries       1, 1 failed, 1 retry left\n" in hv.ok("show", task)
    hv.ok("fail", hv.claim(), "no luck")
    assert "  tries       2, 2 failed, no retries left\n" in hv.ok("show", task)
    task = hv.add("y")
    hv.ok("fail", hv.claim(), "no luck")
    assert "  tries       1, 1 failed\n" in hv.ok("show", task)


@pytest.mark.parametrize(
    ("words", "purpose"),
    [("apply b", "approve"), ("undo b", "undo the changes"), ("batches delete b", "delete")],
)
def test_without_a_terminal_the_answer_is_an_option(hv, words, purpose):
    hv.add("x", "--batch", "b")
    refused = hv.refused(2, *words.split())
    assert f"use --yes to {purpose}, or --dry-run to look first" in refused
