"""The dashboard in a browser: a run is followed, steered and reviewed."""

from __future__ import annotations

import pytest

from tests.web.browser.conftest import LIVE

pytestmark = pytest.mark.web


def test_a_run_is_followed_without_a_reload_and_steered(project, tab):
    page = tab()
    page.wait_for_selector(LIVE)
    page.evaluate("window.unchanged = true")
    project.hv("run", "--detach", "--name", "slow", "--item", "x", "--item", "y", "-j", "1", "--",
               "sh", "-c", "sleep 600", "{}")  # fmt: skip
    page.wait_for_selector("#part-running tbody tr >> text=slow")
    assert page.evaluate("window.unchanged")
    page.goto(f"{project.address}/batches/slow")
    page.click("text=Pause")
    page.fill("#do-pause input[name=reason]", "lunch")
    page.click("#do-pause [type=submit]")
    page.wait_for_selector("#messages >> text=paused")
    page.wait_for_selector("#part-progress >> text=lunch")
    assert project.json("status", "slow")["pauses"][0]["reason"] == "lunch"
    running = project.json("top")[0]["task"]
    page.goto(f"{project.address}/tasks/{running}")
    page.click("text=Stop")
    page.click("#do-stop [type=submit]")
    page.wait_for_selector("#part-summary >> text=failed")
    assert project.json("show", running)["detail"]["task"]["state"] == "failed"


def test_two_people_review_by_keyboard_and_the_second_is_told(project, tab):
    project.hv("run", "--name", "inbox", "--item", "a", "--item", "b", "--chunk-size", "1",
               "--gate", "each", "--detach", "--", "echo")  # fmt: skip
    first = tab("/review")
    first.wait_for_selector("text=inbox")
    first.keyboard.press("j")
    first.keyboard.press("Enter")
    first.wait_for_url("**/review/*/1")
    second = tab(first.url.removeprefix(project.address))
    second.click("text=Reject")  # the dialog is open while the other one decides
    first.bring_to_front()
    first.keyboard.press("a")
    first.fill("#do-approve textarea", "looks good")
    first.click("#do-approve [type=submit]")
    first.wait_for_selector("#messages >> text=approved")
    second.bring_to_front()
    second.click("#do-reject [type=submit]")
    second.wait_for_selector("#messages .bad >> text=changed since it was shown")
    assert project.json("review", "inbox", "--list")[0]["state"] == "approved"
