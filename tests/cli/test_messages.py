"""Messages that once were wrong, or left people without a next step."""

import os
import pwd

import pytest

from hypervisor.core.errors import EXIT_CODES


def test_an_id_with_a_letter_that_no_id_has(hv):
    result = hv("show", "question")
    assert result.code == EXIT_CODES["invalid_input"]
    assert result.err == "hv: 'question' is not an id: ids never contain the letter u.\n"


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
