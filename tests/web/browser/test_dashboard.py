"""The dashboard in a browser: live, steered, reviewed, killed and attacked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hypervisor.web.dashboard.site import MENU

pytestmark = pytest.mark.web

HOSTILE = "<img src=x onerror=window.owned=1>\"'</script><script>window.owned=1</script>"
LIVE = "#connection[data-state=live]"


def test_every_page_is_quiet_fits_a_phone_and_can_be_read_aloud(project, tab):
    from axe_playwright_python.sync_playwright import Axe

    project.hv("run", "--name", HOSTILE[:40], "--item", HOSTILE, "--", "echo", HOSTILE)
    (task,) = project.json("ls", "--state", "done")
    page = tab()
    page.set_viewport_size({"width": 360, "height": 800})
    found: list[tuple[str, str, str]] = []
    for path in (
        *(entry.path for entry in MENU),
        f"/batches/{task['batch']}",
        f"/tasks/{task['id']}",
    ):
        page.goto(project.address + path)
        page.wait_for_selector("main")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate("window.owned") is None, path
        found += [
            (path, problem["id"], problem["nodes"][0]["html"])
            for problem in Axe().run(page).response["violations"]
            if problem["impact"] in ("serious", "critical")
        ]
    assert found == []


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


def test_a_killed_server_is_found_again_and_nothing_is_missed(project, tab):
    page, other = tab("/batches"), tab("/batches")
    for each in (page, other):
        each.bring_to_front()
        each.wait_for_selector(LIVE)
    port = int(project.address.rpartition(":")[2])
    project.kill()
    other.wait_for_selector("#connection[data-state=reconnecting]")
    project.hv("add", "x", "--batch", "added while nobody served")
    project.serve(port=port)
    other.wait_for_selector(LIVE)
    other.wait_for_selector("text=added while nobody served")
    page.bring_to_front()
    page.wait_for_selector("text=added while nobody served")


ATTACK = """<!doctype html><title>attack</title>
<iframe src="{0}/"></iframe>
<form id=f method=post action="{0}/batches/victim/cancel"><input name=reason value=x></form>
<script>
fetch("{0}/batches/victim/cancel", {{method: "POST", credentials: "include", mode: "no-cors"}});
fetch("{0}/", {{credentials: "include"}}).then(r => r.text()).then(t => document.title = t);
</script>"""


@pytest.fixture
def attacker(project):
    """Another web server on the same machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(ATTACK.format(project.address).encode())

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def test_another_page_can_change_read_and_frame_nothing(project, tab, attacker):
    project.hv("add", "precious", "--batch", "victim")
    tab()
    page = tab.context.new_page()
    refused = []
    page.on("response", lambda answer: refused.append((answer.url, answer.status)))
    page.goto(attacker)
    page.evaluate("document.getElementById('f').submit()")
    page.wait_for_url(f"{project.address}/**")
    assert "not allowed" in page.content()
    assert page.title() != "Home"
    cancelled = [status for url, status in refused if url.endswith("/cancel")]
    assert cancelled and set(cancelled) == {403}
    (task,) = project.json("ls", "--batch", "victim")
    assert task["state"] == "active"


def test_a_browser_without_the_token_sees_nothing(project, chromium):
    project.serve()
    context = chromium.new_context()
    page = context.new_page()
    page.goto(project.address)
    page.wait_for_selector("text=hv dashboard")
    page.goto(f"{project.address}/#t=wrong")
    page.reload()
    page.wait_for_selector("text=wrong or has expired")
    assert page.url == f"{project.address}/" and context.cookies() == []
    context.close()
