"""The pages of batches, tasks, learning and home in a browser, with real runs behind them."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from tests.web import storyteller

pytestmark = pytest.mark.web

LIVE = "#connection[data-state=live]"
DRAWN = "[data-timeline]:not([hidden])"
PAINTED = """canvas => {
  const { width, height } = canvas, colors = new Set();
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer;
  for (const pixel of new Uint32Array(pixels)) if (pixel) colors.add(pixel);
  return colors.size;
}"""
STEPS = """n={}; sleep 0.0$n; test "$n" != 3 || { echo "item $n: no such table" >&2; exit 2; }"""


def run_steps(project, name="steps", count=8):
    """Some tasks of a command, of which one fails."""
    items = [word for n in range(1, count + 1) for word in ("--item", str(n))]
    command = ("--shell", "--", STEPS)
    done = project.try_hv("run", "--name", name, "-j", "2", *items, *command)
    assert "7 done" in done or "1 failed" in done, done
    return project.json("ls", "--batch", name)


def holds(page, expression):
    """Wait until it is true. (The policy of the pages refuses what Playwright has for this.)"""
    wait_until(lambda: page.evaluate(expression))


def wait_until(is_true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def attempts_shown(page):
    return int(page.inner_text("[data-about]").split()[0].replace(",", ""))


def drag(page, selector, start, end):
    """From one share of its width to another."""
    box = page.locator(selector).bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
    page.mouse.up()


def test_workers_are_drawn_zoomed_and_lead_to_their_tasks(project, tab):
    run_steps(project)
    page = tab("/batches/steps")
    page.wait_for_selector(DRAWN)
    canvas = page.locator("[data-drawing]")
    assert canvas.evaluate(PAINTED) >= 3, "the background, what is done and what failed"
    assert attempts_shown(page) == 8
    assert "8 attempts of" in (canvas.get_attribute("aria-label") or "")
    canvas.scroll_into_view_if_needed()
    drag(page, "[data-drawing]", 0.05, 0.3)
    page.wait_for_url("**since=*until=*")
    holds(page, "Number.parseInt(document.querySelector('[data-about]').textContent) < 8")
    zoomed = page.url
    page.click("[data-zoom=all]")
    holds(page, "!location.search.includes('since')")
    holds(page, "document.querySelector('[data-about]').textContent.startsWith('8 ')")
    canvas.focus()
    page.keyboard.press("+")
    page.wait_for_url("**since=*")
    page.keyboard.press("0")
    holds(page, "!location.search.includes('since')")
    drag(page, "[data-overview]", 0.5, 0.9)
    page.wait_for_url("**since=*")
    page.goto(zoomed)  # the selected time is part of the address
    page.wait_for_selector(DRAWN)
    assert attempts_shown(page) < 8
    page.click("[data-zoom=all]")
    holds(page, "document.querySelector('[data-about]').textContent.startsWith('8 ')")
    canvas.hover(position={"x": 4, "y": 6})
    page.wait_for_selector(".timeline-tip:not([hidden])")
    canvas.click(position={"x": 4, "y": 6})
    page.wait_for_url("**/tasks/*")


def test_a_batch_is_steered_by_its_buttons_which_name_their_commands(project, tab):
    run_steps(project)
    page = tab("/batches/steps")
    page.wait_for_selector("#part-failed >> text=no such table")
    page.wait_for_selector(LIVE)

    def confirm(label, id, command, answer):
        page.click(f"#part-actions .buttons > button:text-is('{label}')")
        page.wait_for_selector(f"#do-{id}:popover-open")
        assert command in page.inner_text(f"#do-{id} .command"), id
        page.click(f"#do-{id} [type=submit]")
        page.wait_for_selector(f"#messages >> text={answer}")

    page.click("#part-actions .buttons > button:text-is('Workers')")
    page.fill("#do-scale input[name=workers]", "3")
    page.click("#do-scale [type=submit]")
    page.wait_for_selector("#messages >> text=at most 3 workers")
    confirm("Retry failed", "retry", "hv retry --batch steps", "ready")
    holds(page, "document.querySelector('#part-figures')?.textContent.includes('9')")
    wait_until(lambda: states(project) == {"done": 7, "failed": 1})
    confirm("Start again", "again", "hv retry --batch steps --state done", "8 tasks")
    wait_until(lambda: attempts(project) == 17 and states(project) == {"done": 7, "failed": 1})
    page.reload()
    page.click("text=Export")
    with page.expect_download() as download:
        page.click("#do-export >> text=CSV")
    assert download.value.path().read_text().count("\n") == 9
    page.keyboard.press("Escape")
    assert page.locator("text=Pause").count() == 0, "nothing is left"
    project.hv("add", "open", "--batch", "steps", "--inbox")
    confirm("Pause", "pause", "hv pause steps", "paused")
    page.wait_for_selector("#part-progress >> text=Paused")
    confirm("Resume", "resume", "hv resume steps", "resumed")
    confirm("Cancel", "cancel", "hv cancel --batch steps", "cancelled")
    assert states(project) == {"done": 7, "failed": 1, "cancelled": 1}


def states(project):
    counted = project.json("status", "steps")["stats"]["states"]
    return {state: count for state, count in counted.items() if count}


def attempts(project):
    return project.json("summary", "steps")["attempts"]


COUNTING = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo line $i of {}; sleep 0.02; done"


OUTPUT = "document.querySelector('#output')"
AT_END = f"{OUTPUT}.scrollHeight - {OUTPUT}.clientHeight - {OUTPUT}.scrollTop < 30"


def test_an_output_is_followed_searched_and_read_from_any_place(project, tab):
    project.hv("run", "--detach", "--name", "talk", "--item", "x", "--shell", "--", COUNTING)
    (task,) = project.json("ls", "--batch", "talk")
    page = tab(f"/tasks/{task['id']}")
    page.wait_for_selector("#output >> text=line 60 of x")
    assert page.is_checked("[data-follow-toggle]")
    holds(page, AT_END)
    page.locator("#output").hover()
    page.mouse.wheel(0, -400)
    holds(page, "!document.querySelector('[data-follow-toggle]').checked")
    top, height = page.evaluate(f"[{OUTPUT}.scrollTop, {OUTPUT}.scrollHeight]")
    holds(page, f"{OUTPUT}.scrollHeight > {height}")
    assert page.evaluate(f"{OUTPUT}.scrollTop") == top, "it stays"
    page.check("[data-follow-toggle]")
    holds(page, AT_END)
    page.fill("[name=q]", "LINE 42 ")
    page.keyboard.press("Enter")
    page.wait_for_selector(".found >> text=line 42 of x")
    page.click(".found a")
    page.wait_for_url("**raw=1&from=*")
    assert page.inner_text("#output").startswith("line 42 of x")
    project.hv("kill", task["id"])


def test_a_task_of_an_agent_tells_its_story(project, tab):
    code = project.folder / "code"
    code.mkdir()
    (code / "area.py").write_text(storyteller.BEFORE)
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "first")):
        who = ("-c", "user.name=n", "-c", "user.email=e@example.com")
        subprocess.run(["git", *who, *words], cwd=code, check=True, timeout=60)
    config = project.folder / ".hypervisor" / "config.toml"
    with open(config, "a") as file:
        file.write(storyteller.config(project.folder))
    work = ("--agent", "storyteller", "--prompt", "Correct {}", "--workspace", "clone")
    where = ("--cwd", str(code), "--branch", "billing")
    project.hv("run", "--name", "fix", "--item", "area.py", *work, *where)
    (task,) = project.json("ls", "--batch", "fix")
    project.hv("remember", "areas are multiplied", "--for", task["id"])
    project.hv("add", "publish it", "--after", task["id"])
    page = tab(f"/tasks/{task['id']}")
    story = page.inner_text("#transcript")
    for told in (
        "I look at the code first.",
        "python -m pytest -q",
        "return a * b",
        "no such file",
    ):
        assert told in story, told
    assert page.inner_text("#transcript .added").strip() == "+    return a * b"
    assert "2 passed" not in story
    page.click("#transcript details summary")
    page.wait_for_selector("#transcript >> text=2 passed")
    page.click("#prompt summary")
    page.wait_for_selector("#prompt >> text=Correct")
    assert "return a * b" in page.inner_text("#part-changes .added")
    assert "areas are multiplied" in page.inner_text("#part-findings")
    assert "1,020 tokens" in page.inner_text("#part-summary")
    page.click("#snapshots summary")
    page.click("#snapshots tbody a")
    page.wait_for_selector("#part-changes >> text=at snapshot")
    assert page.evaluate("window.owned") is None
    page.click(".graph text:has-text('publish it')")
    page.wait_for_selector("h1 >> text=publish it")
    page.wait_for_selector(".graph [aria-current] text:has-text('publish it')")


def test_home_says_why_nothing_starts_and_what_finished_meanwhile(project, tab):
    page = tab()
    page.wait_for_selector(LIVE)
    assert page.locator("[data-since]").count() == 0, "the first visit"
    page.goto(f"{project.address}/tasks")
    run_steps(project)
    project.hv("pause", "steps", "--reason", "the tables are being made")
    project.hv("retry", "--batch", "steps")
    page.goto(project.address)
    page.wait_for_selector("[data-since] >> text=since your last visit")
    assert re.search(r"\d+ done", page.inner_text("[data-since]"))
    page.wait_for_selector("#part-finished tr.new")
    page.wait_for_selector("h2 >> text=Why nothing starts")
    page.click("#part-waiting .reasons >> text=steps")
    page.wait_for_selector("#part-progress >> text=the tables are being made")


def test_a_task_is_found_by_a_part_of_its_id_and_what_was_learned_is_drawn(project, tab):
    tasks = run_steps(project)
    page = tab("/tasks")
    page.keyboard.press("/")
    page.keyboard.type(tasks[0]["id"][-6:].upper())
    page.keyboard.press("Enter")
    page.wait_for_url("**text=*")
    assert page.locator("#part-list tbody tr").count() == 1
    assert page.inner_text("#part-list tbody .id") == tasks[0]["id"]
    for path in ("/learning", "/batches/steps"):
        page.goto(project.address + path)
        page.wait_for_selector(".curve canvas")
        assert page.locator(".curve canvas").first.evaluate(PAINTED) > 1
        assert "Next time" in page.inner_text("main")
