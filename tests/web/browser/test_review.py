"""Review in a browser: plans before approval, corrections, keys, thumbs, and two people at once.
Runs, merges and retries are made by a real supervisor."""

from __future__ import annotations

import re
import shlex

import pytest

from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from tests.web.browser.review_runs import (
    HOSTILE,
    categorize,
    make_conflict,
    propose_changes,
    wait_for_chunk,
)
from tests.web.browser.test_every_page import commands

pytestmark = pytest.mark.web

PHONE = {"width": 360, "height": 740}


def state_of(project):
    with project.open() as hv:
        return hv.chunks("inbox")[0].state


def items_of(project):
    with project.open() as hv:
        return hv.review_items("inbox", 1).items


def message(page, text, bad=False):
    page.wait_for_selector(f"#messages .message{'.bad' if bad else ''} >> text={text}")


@pytest.fixture
def chunk(project):
    return propose_changes(project)


def test_a_chunk_is_approved_by_keyboard_after_its_diffs_were_shown(project, chunk, tab):
    page = tab(chunk)
    assert page.locator("#part-proposed h2").inner_text() == "Proposed changes (7)"
    first = page.locator("#part-proposed details.diff").first
    assert "-status: open" in first.inner_text() and "+status: done" in first.inner_text()
    assert "+second line" in page.locator("#part-proposed").inner_text()
    assert page.evaluate("window.owned") is None, "the text of a new file is only text"
    long, lock = (page.locator(f"details.diff:has-text('write {name}')") for name in ("long", "p"))
    assert "+600" in long.locator("summary").inner_text(), "counts first"
    assert long.locator(".lines").count() == lock.locator(".lines").count() == 0, "folded"
    page.keyboard.press("j")
    while not long.evaluate("row => row.classList.contains('current')"):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    long.locator(".lines >> text=+line 599").wait_for()
    lock.locator("summary").click()
    lock.locator(".lines >> text=+{}").wait_for()
    assert "outside" in page.locator("#refused").text_content()
    page.keyboard.press("?")
    page.wait_for_selector("#help >> text=retry with a note")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.wait_for_selector("#do-approve:popover-open >> text=hv review inbox --chunk 1 --approve")
    page.keyboard.press("Enter")
    message(page, "chunk 1 of inbox is approved; 1 chunk released")
    page.wait_for_selector("#part-proposed h2 >> text=Approved changes of the batch (7)")
    assert long.locator(".lines").count() == 1, "what was opened stays open"
    assert (project.folder / "in" / "1.md").read_text().startswith("---\nstatus: open")
    assert wait_for_chunk(project).endswith("/2"), "the next chunk has run"


def test_what_is_approved_and_applied_is_what_was_shown(project, chunk, tab):
    page = tab(chunk)
    file = project.folder / "in" / "2.md"
    file.write_text("---\nstatus: mine\n---\n")
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    message(page, "have changed since they were shown", bad=True)
    assert state_of(project) == "open"
    page.wait_for_selector("#part-proposed >> text=-status: mine")  # it has been refreshed
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    message(page, "is approved")
    page.click("[popovertarget=do-apply]")
    file.write_text("---\nstatus: again\n---\n")
    page.click("#do-apply [type=submit]")
    message(page, "has changed since it was shown", bad=True)
    page.wait_for_selector("#part-proposed >> text=-status: again")
    page.click("[popovertarget=do-apply]")
    page.click("#do-apply [type=submit]")
    message(page, "7 changes applied")
    assert (project.folder / "new.txt").read_text() == f"{HOSTILE}\nsecond line\n"
    assert file.read_text() == "---\nstatus: done\n---\n"
    assert not (project.folder / "in" / "9.md").exists()


def test_two_people_correct_and_decide_at_once(project, chunk, tab):
    task = items_of(project)[0].task
    ann, bob = tab(f"{chunk}/{task}"), tab(f"{chunk}/{task}")
    deciding = tab(chunk)
    deciding.click("text=Approve")  # the dialog is open while others correct
    ann.bring_to_front()
    ann.fill("[name='member.category']", "rent")
    ann.click("#part-edit >> text=Save")
    message(ann, "1 field")
    bob.bring_to_front()
    bob.fill("[name='member.category']", "tax")
    bob.click("#part-edit >> text=Save")
    message(bob, "has changed since it was shown", bad=True)
    assert bob.input_value("[name='member.category']") == "tax", "what was typed is kept"
    deciding.bring_to_front()
    deciding.click("#do-approve [type=submit]")
    message(deciding, "has changed since it was shown", bad=True)
    assert state_of(project) == "open"
    deciding.wait_for_selector("#part-summary .bars >> text=rent")  # it has been refreshed
    deciding.click("text=Reject")
    deciding.click("#do-reject [type=submit]")
    message(deciding, "is rejected")


def save(page):
    """Save a correction; the form is then about the new result."""
    shown = page.input_value("#part-edit [name=shown]")
    page.click("#part-edit >> text=Save")
    changed = "shown => document.querySelector('#part-edit [name=shown]').value !== shown"
    page.wait_for_function(changed, arg=shown)


def test_a_result_and_its_proposed_edit_are_edited(project, chunk, tab):
    page = tab(f"{chunk}?items=1")
    page.wait_for_selector("#part-items details")
    page.locator("#part-items details summary").first.click()
    while not page.locator("#part-items details.current").count():
        page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_url(re.compile(r".*/review/\w+/1/\w+#edit"))
    page.fill("[name='action.0.set']", '{"status": "paid", "by": "ann"}')
    page.check("[name='drop.1']")
    save(page)
    page.wait_for_selector("#part-changes >> text=+status: paid")
    page.wait_for_selector("#part-changes h2 >> text=Would change (2)")
    assert not page.is_checked("[name='drop.1']"), "the form is about the new result now"
    page.fill("[name='member.category']", "rent")
    save(page)
    page.wait_for_selector("#part-head >> text=corrected")
    page.fill("[name='action.0.set']", "{")
    page.click("#part-edit >> text=Save")
    message(page, "is not valid JSON", bad=True)
    item = items_of(project)[0]
    assert item.result["category"] == "rent" and item.corrected
    assert [a["path"] for a in item.result["actions"]] == ["in/1.md", "package-lock.json"]
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("n")
    page.wait_for_selector("h1 >> text=2")


def test_one_item_and_the_chunk_are_retried_with_a_note(project, chunk, tab):
    first, second, _ = (item.task for item in items_of(project))
    project.hv("review", "inbox", "--set", first, "category=rent")
    page = tab(f"{chunk}/{second}")
    page.keyboard.press("t")
    page.keyboard.type("this one is from the bank")
    page.click("#do-retry [type=submit]")
    message(page, "back in the queue")
    page.wait_for_selector("#part-edit >> text=Correct", state="attached")
    again = tab(f"{chunk}/{second}")
    wait_for_chunk(project)
    again.reload()
    again.locator("#result summary").click()
    again.wait_for_selector("#result >> text=this one is from the bank")
    page = tab(chunk)
    page.keyboard.press("t")
    page.keyboard.type("all of them")
    page.click("#do-retry [type=submit]")
    message(page, "2 tasks of chunk 1 put back into the queue; 1 corrected result kept")
    wait_for_chunk(project)
    results = [item.result for item in items_of(project)]
    assert [result["rationale"] for result in results[1:]] == ["all of them"] * 2
    assert results[0]["category"] == "rent"
    page.wait_for_selector("#part-summary >> text=waits for your decision")


def test_categories_lead_to_items_and_items_come_in_pages(project, tab):
    from hypervisor.web.dashboard.pages.review import ITEMS_AT_ONCE

    many = ITEMS_AT_ONCE + 3
    page = tab(categorize(project, many))
    page.click("#part-summary .bars >> text=spam")
    page.wait_for_selector("#part-items h2 >> text=Items: spam")
    assert page.locator("#part-items details").count() == many // 2
    page.click("text=All items")
    page.wait_for_selector("text=More items")
    seen = page.locator("#part-items details .name").all_inner_texts()
    page.click("text=More items")
    page.wait_for_url("**after=*")
    seen += page.locator("#part-items details .name").all_inner_texts()
    assert sorted(map(int, seen)) == list(range(1, many + 1))


def test_a_conflict_is_looked_at_and_decided_once(project, tab):
    task = make_conflict(project)
    list_, alone = tab("/review"), tab(f"/review/tasks/{task}")
    list_.bring_to_front()
    card = list_.locator(f"#review-{task}")
    assert "conflict in shared.txt" in card.inner_text()
    assert f"hv resolve {task}" in card.inner_text()
    list_.keyboard.press("j")
    card.locator("summary >> text=Changes").click()
    card.locator(".lines >> text=+by an agent").wait_for()
    project.hv("add", "an event")
    list_.wait_for_selector("#connection[data-state=live]")
    assert card.locator(".lines").count() == 1, "what was opened stays open"
    alone.bring_to_front()
    alone.wait_for_selector(".lines >> text=+by an agent")
    alone.click("text=Approve")  # the dialog is open while another person decides
    list_.bring_to_front()
    list_.keyboard.press("r")
    list_.fill(f"#do-reject-{task} [name=reason]", "not like this")
    list_.click(f"#do-reject-{task} [type=submit]")
    message(list_, "is rejected")
    list_.wait_for_selector("text=Nothing waits for a review")
    alone.bring_to_front()
    alone.click(f"#do-approve-{task} [type=submit]")
    message(alone, "has changed since it was shown", bad=True)
    assert project.json("show", task)["detail"]["task"]["state"] == "failed"


def test_a_blocked_task_says_what_unblocks_it_and_runs_again(project, tab):
    project.hv("add", "rotate the key", "--batch", "keys")
    (claim,) = project.json("claim", "--batch", "keys")
    project.hv("block", claim["token"], "the key has expired", "--unblock", HOSTILE)
    page = tab("/review")
    card = page.locator(".card.bad")
    assert "the key has expired" in card.inner_text() and HOSTILE in card.inner_text()
    page.keyboard.press("j")
    page.keyboard.press("t")
    page.keyboard.press("Enter")
    message(page, "is back in the queue")
    page.wait_for_selector("text=Nothing waits for a review")
    assert page.evaluate("window.owned") is None


def test_review_fits_a_thumb_can_be_read_aloud_and_only_read(project, chunk, tab):
    from axe_playwright_python.sync_playwright import Axe

    task = items_of(project)[1].task
    page = tab()
    page.set_viewport_size(PHONE)
    found = []
    for path in ("/review", f"{chunk}?items=1", f"{chunk}/{task}"):
        page.goto(project.address + path)
        page.wait_for_selector("main .part")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert page.evaluate("window.owned") is None, path
        for action, copied in commands(page):
            assert copied, f"{action} shows no command"
            words = shlex.split(copied)
            make_parser(COMMANDS[words[1]])[0].parse_args(words[2:])
        found += [
            (path, problem["id"], problem["nodes"][0]["html"])
            for problem in Axe().run(page).response["violations"]
            if problem["impact"] in ("serious", "critical")
        ]
    assert found == []
    page.goto(project.address + chunk)
    for name in ("approve", "reject", "retry"):
        box = page.locator(f"[popovertarget=do-{name}]:not([popovertargetaction])").bounding_box()
        assert box["y"] + box["height"] <= PHONE["height"], "reachable without scrolling"
        assert box["height"] >= 44 and box["x"] + box["width"] <= PHONE["width"]
    page.click("[popovertarget=do-approve]")
    box = page.locator("#do-approve").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    page.click("#do-approve [type=submit]")
    message(page, "is approved")
    page.close()
    project.kill()
    project.serve("--read-only", port=project.port)
    page = tab(chunk)
    page.wait_for_selector("text=read-only")
    page.wait_for_selector("#part-proposed >> text=+status: done")
    assert page.locator("[data-key=a], [data-key=t], form[method=post]").count() == 0
