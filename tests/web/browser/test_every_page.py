"""Every page, with hostile text in every field: quiet, readable, reachable, and only text."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest

from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.web.dashboard.site import MENU
from tests.web.browser.conftest import LIVE, Person, Problems, Project
from tests.web.browser.stocked import LABEL, MARKUP, NAME, TEXT, stock

pytestmark = pytest.mark.web

MAX_PAGE = 3_000_000  # characters: a page stays quick whatever is stored
LOOK = r"""async () => {
  const found = [], main = document.querySelector("main");
  const elements = "img, iframe, object, embed, script, [onerror], [onload], [hx-get='/owned']";
  for (const element of main.querySelectorAll(elements)) {
    found.push(element.outerHTML.slice(0, 200));
  }
  for (const link of document.querySelectorAll("a[href]")) {
    const target = new URL(link.getAttribute("href"), location);
    if (target.origin !== location.origin) found.push(`links to ${target}`);
  }
  if (window.owned) found.push("ran a script");
  const hidden = /[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u202a-\u202e\u2066-\u2069]/u;
  const text = document.documentElement.outerHTML;
  if (hidden.test(text)) {
    const at = hidden.exec(text).index;
    found.push(`has ${JSON.stringify(text[at])}: ${text.slice(at - 100, at)}`);
  }
  if (text.length > LIMIT) found.push(`has ${text.length} characters`);
  const wide = document.documentElement.scrollWidth;
  const widest = [...main.querySelectorAll("*")].filter(element => !element.closest(".scroll, pre"))
    .find(element => element.getBoundingClientRect().right > innerWidth + 1);
  if (wide > innerWidth) found.push(`is ${wide} wide: ${widest?.outerHTML.slice(0, 200)}`);
  const begun = performance.now();
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  if (performance.now() - begun > 3000) found.push("does not respond");
  return found;
}""".replace("LIMIT", str(MAX_PAGE))
TOKYO = timezone(timedelta(hours=9))
ABSOLUTE = """() => [...document.querySelectorAll("main time")].map(
    time => [time.dateTime, time.title, time.textContent])"""


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("stocked"))
    try:
        ids = stock(project)
        project.serve()
        yield project, ids
    finally:
        project.end()


@pytest.fixture
def someone(chromium, stocked):
    made, problems = [], Problems()

    def person(**options):
        made.append(Person(chromium, stocked[0], problems, **options))
        return made[-1]

    yield person
    for each in made:
        each.context.close()
    assert problems == []


def paths(ids):
    """Everything that has an address."""
    hostile, batch = quote(MARKUP), ids["batch"]
    return [
        *(entry.path for entry in MENU),
        "/batches?archived=1",
        f"/batches/{batch}",
        "/batches/tasks",
        f"/batches/{ids['slow batch']}",
        *(f"/tasks/{ids[kind]}" for kind in ("waiting", "bad", "long", "slow", "agent")),
        f"/tasks/{ids['long']}?raw=1&from=5000000",
        f"/tasks/{ids['long']}?q={hostile}",
        f"/tasks/{ids['agent']}?raw=1",
        f"/review/{batch}/1",
        f"/review/{batch}/1?items=1",
        *(f"/review/tasks/{ids[kind]}" for kind in ("bad", "agent")),
        f"/tasks?text={hostile}&type={hostile}",
        f"/events?text={hostile}&kind={hostile}&batch={hostile}",
        f"/hive?text=img&branch={quote(NAME)}",
        f"/new?command={quote(shlex.quote(MARKUP))}&items={hostile}%0A{hostile}&name={hostile}",
        f"/nowhere/{hostile}",
        f"/tasks/{hostile}",
    ]


def look(page, project, path, rules):
    """What is wrong with a page."""
    from axe_playwright_python.sync_playwright import Axe

    answer = page.goto(project.address + path)
    expected = (404, 400) if quote(MARKUP) in path.partition("?")[0] else (200, 400)
    found = page.evaluate(LOOK)
    if answer.status not in expected:
        found.append(f"answered {answer.status}")
    options = {"resultTypes": ["violations"], "runOnly": rules}
    for problem in Axe().run(page, options=options).response["violations"]:
        if problem["impact"] in ("serious", "critical"):
            found.append(f"{problem['id']}: {problem['nodes'][0]['html'][:200]}")
    return [f"{path[:60]}: {each}" for each in found]


@pytest.mark.parametrize(
    "scheme, width, rules",
    [
        ("light", 360, ["wcag2a", "wcag2aa", "best-practice"]),
        ("dark", 1280, ["color-contrast"]),  # all else is the same
    ],
)
def test_every_page_is_quiet_fits_and_shows_only_text(stocked, someone, scheme, width, rules):
    project, ids = stocked
    tab = someone(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = tab()
    found = [problem for path in paths(ids) for problem in look(page, project, path, rules)]
    assert not found, "\n".join(found)


def test_hostile_text_can_be_read(stocked, someone):
    project, ids = stocked
    page = someone()()
    for path in ("/", "/tasks", "/batches", "/hive", "/agents", "/review", "/notifications",
                 f"/batches/{ids['batch']}", f"/tasks/{ids['bad']}", f"/tasks/{ids['agent']}",
                 f"/review/{ids['batch']}/1?items=1"):  # fmt: skip
        page.goto(project.address + path)
        assert "onerror=window.owned=1>" in page.inner_text("main"), path
    page.goto(f"{project.address}/tasks/{ids['long']}?raw=1&from=5000000")
    shown = page.inner_text("#output")
    assert "more characters" in shown and len(shown) < 10_000
    page.goto(f"{project.address}/tasks/{ids['bad']}?raw=1")
    assert "\\x00nul" in page.inner_text("#output"), "a NUL is shown"


def test_hostile_text_stays_text_when_it_arrives_live(stocked, someone):
    project, _ = stocked
    page = someone()("/tasks?batch=live")
    page.goto(f"{project.address}/batches")
    page.wait_for_selector(LIVE)
    with project.open() as hv:
        hv.add(TEXT, batch=f"live {LABEL}")
    page.wait_for_selector("#part-list >> text=live <img")
    page.wait_for_selector(LIVE)
    assert page.evaluate(LOOK) == []


def test_a_message_with_hostile_text_is_text(stocked, someone):
    _, ids = stocked
    page = someone()(f"/tasks/{ids['waiting']}")
    page.click("#part-summary button[popovertarget=do-cancel]")
    page.fill("#do-cancel input[name=reason]", TEXT.replace("\u2028", ""))
    page.click("#do-cancel [type=submit]")
    page.wait_for_selector("#messages .message")
    page.wait_for_selector("#part-summary .state >> text=cancelled")
    assert page.evaluate(LOOK) == []
    answer = page.evaluate(
        """async path => (await fetch(path, { method: "POST", headers: { "hx-request": "true" },
            body: "reason=a%00b" })).status""",
        f"/tasks/{ids['bad']}/retry",
    )
    assert answer == 400, "a NUL is refused"


def commands(page):
    """Of every action: the address that it posts to, and the command that it shows."""
    return page.eval_on_selector_all(
        "form[method=post]",
        """forms => forms.map(form => [
            new URL(form.action).pathname,
            (form.querySelector("[data-copy]") ?? form.parentElement.querySelector("[data-copy]"))
                ?.dataset.copy])""",
    )


def test_every_button_shows_a_command_that_the_terminal_understands(stocked, someone):
    project, ids = stocked
    page, seen = someone()(), set()
    for path in paths(ids):
        page.goto(project.address + path)
        if path == "/new":
            page.fill("[name=command]", "echo {}")
            page.fill("[name=items]", "a")
            page.click("#new-run [type=submit]")
            page.wait_for_selector("form[action='/new/start']")
        for action, copied in commands(page):
            assert copied and copied.startswith("hv "), (path, action)
            words = shlex.split(copied)
            make_parser(COMMANDS[words[1]])[0].parse_args(words[2:])
            seen.add(action.rpartition("/")[2])
    assert {"pause", "resume", "scale", "retry", "cancel", "stop", "approve", "reject", "remove",
            "end-rate-limit", "check", "start"} <= seen  # fmt: skip


def test_a_command_is_copied(stocked, someone):
    project, ids = stocked
    tab = someone()
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=project.address)
    page = tab(f"/batches/{ids['batch']}")
    page.click("button[popovertarget=do-pause]")
    page.click("#do-pause [data-copy]")
    page.wait_for_selector("#do-pause >> text=copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert shlex.split(copied) == ["hv", "pause", LABEL]


def test_times_are_local_and_absolute_on_hover(stocked, someone):
    project, ids = stocked
    tab = someone(timezone_id="Asia/Tokyo", locale="en-GB")
    page, count = tab(), 0
    for path in ("/", "/tasks", "/batches", "/events", f"/tasks/{ids['bad']}"):
        page.goto(project.address + path)
        for stamp, title, text in page.evaluate(ABSOLUTE):
            at = datetime.fromisoformat(stamp).astimezone(TOKYO)
            assert at.strftime("%H:%M:%S") in title and str(at.day) in title
            assert re.search(r"\d|now", text) and text != title
            count += 1
    assert count > 20


def test_everything_has_an_address_of_its_own(stocked, someone):
    project, ids = stocked
    tab = someone()
    page = tab("/tasks")
    page.fill("input[name=text]", "3 <img")
    page.select_option("select[name=batch]", label="tasks")
    page.keyboard.press("Enter")
    page.click("text=Search")
    page.wait_for_url("**/tasks?*text=3*")
    rows = page.locator("#part-list tbody tr").all_inner_texts()
    other = tab(page.url.removeprefix(project.address))
    assert len(rows) == 1 and rows[0].startswith("3 <img")
    assert other.locator("#part-list tbody tr").count() == 1
    assert other.input_value("input[name=text]") == "3 <img"
    page.goto(f"{project.address}/tasks/{ids['long']}?attempt=1&raw=1&from=0")
    assert "red" in page.inner_text("#output")


def test_the_keyboard_reaches_everything(stocked, someone):
    _, ids = stocked
    page = someone()(f"/batches/{ids['batch']}")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    buttons = "a:visible, button:enabled:visible, summary:visible"
    wanted = page.locator("main").locator(buttons).count()
    reached, last = set(), None
    for _ in range(wanted + 40):
        page.keyboard.press("Tab")
        now = page.evaluate("""() => {
            const at = document.activeElement, all = [...document.querySelectorAll("*")];
            const seen = getComputedStyle(at).outlineStyle !== "none" || at.matches("input");
            return document.querySelector("main").contains(at) ? [all.indexOf(at), seen] : null;
        }""")
        if now is None and last is not None:
            break
        if now is not None:
            assert now[1], "the focus can be seen"
            reached.add(now[0])
        last = now
    assert len(reached) >= wanted
    page.focus("button[popovertarget=do-pause]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#do-pause:popover-open")
    page.keyboard.press("Escape")
    page.wait_for_selector("#do-pause:popover-open", state="hidden")
    page.keyboard.press("?")
    page.wait_for_selector("#help:popover-open")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/tasks")
