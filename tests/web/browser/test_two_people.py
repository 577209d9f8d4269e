"""Two people, and two tabs of one, steer the same work at once: one decision counts, and both see
the same afterwards. With a real supervisor."""

from __future__ import annotations

import pytest

from tests.web.browser.conftest import LIVE, wait_for

pytestmark = pytest.mark.web

# Fails once, then runs until it is stopped.
ONCE = "test -e failed && exec sleep 600; touch failed; exit 1"


@pytest.fixture
def people(project, person):
    project.ungoverned()
    project.serve()
    return person(), person()


def start(project, name, script="sleep 600", *, items=1):
    """A batch in the background; returns the ids of its tasks."""
    given = [word for n in range(items) for word in ("--item", f"{name} {n}")]
    project.hv("run", "--detach", "--name", name, "-j", "1", *given, "--", "sh", "-c", script, "{}")
    with project.open() as hv:
        return [task.id for task in hv.list_tasks(batch=name)][::-1]


def task_of(project, id):
    with project.open() as hv:
        return hv.show(id).detail


def events_of(project, id):
    with project.open() as hv:
        return [event.kind for event in hv.events(0, 5_000) if event.task == id]


def at_once(buttons, reason="together"):
    """All open their dialogs; then all send them before any answer is read. Returns what they are
    told."""
    for page, button in buttons.items():
        page.wait_for_selector(LIVE)
        page.evaluate("document.querySelector('#messages').replaceChildren()")  # of earlier actions
        page.click(f"main button[popovertarget=do-{button}]")
        if page.query_selector(f"#do-{button} input[name=reason]"):
            page.fill(f"#do-{button} input[name=reason]", reason)
    for page, button in buttons.items():
        page.evaluate("id => document.querySelector(`#${id} form`).requestSubmit()", f"do-{button}")
    messages = [page.wait_for_selector("#messages .message") for page in buttons]
    return [message.inner_text() for message in messages]


def test_both_cancel_a_running_task(project, people):
    [id] = start(project, "b")
    wait_for(lambda: task_of(project, id).task.state == "in_progress")
    pages = [someone(f"/tasks/{id}") for someone in people]
    said = at_once(dict.fromkeys(pages, "cancel"))
    assert all("cancelled" in text or "nothing was changed" in text.lower() for text in said), said
    for page in pages:
        page.wait_for_selector("#part-summary .state >> text=cancelled")
        page.wait_for_selector("button[popovertarget=do-retry]")
        assert not page.query_selector("button[popovertarget=do-cancel]")
    assert events_of(project, id).count("cancel") == 1
    assert len(task_of(project, id).attempts) == 1


def test_both_retry_a_failed_task_and_it_runs_once_more(project, people):
    [id] = start(project, "b", ONCE)
    wait_for(lambda: task_of(project, id).task.state == "failed")
    pages = [someone(f"/tasks/{id}") for someone in people]
    said = at_once(dict.fromkeys(pages, "retry"))
    assert len([text for text in said if "back in the queue" in text]) == 1, said
    for page in pages:
        page.wait_for_selector("#part-summary .state >> text=running")
    assert events_of(project, id).count("reopen") == 1
    assert len(task_of(project, id).attempts) == 2


def test_one_cancels_while_the_other_stops(project, people):
    [id] = start(project, "b")
    wait_for(lambda: task_of(project, id).task.state == "in_progress")
    first, second = (someone(f"/tasks/{id}") for someone in people)
    at_once({first: "cancel", second: "stop"})
    for page in (first, second):
        page.wait_for_selector("#part-summary .state >> text=cancelled")
    assert len(task_of(project, id).attempts) == 1, "a cancelled task is not tried again"


def test_both_pause_and_either_resumes(project, people):
    running, waiting = start(project, "b", items=2)
    wait_for(lambda: task_of(project, running).task.state == "in_progress")
    pages = [someone("/batches/b") for someone in people]
    said = at_once(dict.fromkeys(pages, "pause"))
    assert sorted(text.partition(":")[0].partition(";")[0] for text in said) == [
        "already paused",
        "paused",
    ]
    for page in pages:  # without a reload, in both browsers
        page.wait_for_selector("#part-progress >> text=together")
        page.wait_for_selector("main button[popovertarget=do-resume]")
    said = at_once(dict.fromkeys(pages, "resume"))
    assert "resumed" in said
    for page in pages:
        page.wait_for_selector("main button[popovertarget=do-pause]")
    with project.open() as hv:
        assert hv.status("b").pauses == ()
        kinds = [event.kind for event in hv.events(0, 5_000)]
    assert kinds.count("pause") == 1 and kinds.count("resume") == 1
    assert task_of(project, waiting).task.state == "active"


def test_one_retries_the_batch_while_the_other_cancels_it(project, people):
    ids = start(project, "b", "exit 1", items=3)
    wait_for(lambda: {task_of(project, id).task.state for id in ids} == {"failed"})
    first, second = (someone("/batches/b") for someone in people)
    project.hv("pause", "b")  # what is retried waits
    at_once({first: "retry", second: "cancel"})
    states = [task_of(project, id).task.state for id in ids]
    assert set(states) <= {"active", "waiting", "cancelled", "failed"}
    shown = {"active": "ready", "waiting": "waiting"}
    for state in set(states):
        for page in (first, second):
            text = f"{states.count(state)} {shown.get(state, state)}"
            page.wait_for_selector(f"#part-progress .legend >> text={text}")


def test_the_second_tab_of_one_person_follows_the_first(project, people):
    [id] = start(project, "b")
    wait_for(lambda: task_of(project, id).task.state == "in_progress")
    tab, _ = people
    first, second = tab(f"/tasks/{id}"), tab(f"/tasks/{id}")
    second.wait_for_selector(LIVE)
    second.evaluate("window.unchanged = true")
    second.click("main button[popovertarget=do-stop]")  # a dialog that will be out of date
    at_once({first: "stop"})
    first.wait_for_selector("#part-summary .state >> text=failed")
    second.click("#do-stop [type=submit]")
    second.wait_for_selector("#messages .bad >> text=not running")
    second.wait_for_selector("#part-summary .state >> text=failed")
    assert second.evaluate("window.unchanged") and events_of(project, id).count("stop") == 1
