"""Processes that functions start live as long as their interpreter, and end with it."""

from __future__ import annotations

import json

KEEP = '''
import os, subprocess, sys
held = None

def keep(item):
    """A helper for all items, and one of each item that it loses sight of."""
    global held
    if held is None:
        held = subprocess.Popen(["sleep", "300"])
    lost = subprocess.run(
        ["sh", "-c", "sleep 300 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True
    )
    return {"held": held.pid, "alive": held.poll() is None, "lost": int(lost.stdout)}
'''


def test_a_helper_is_kept_for_the_next_item_and_what_was_lost_is_not(project):
    (project.folder / "mine.py").write_text(KEEP)
    ended = project.run("--name", "f", "--workers", "1", "--fn", "mine:keep", items="abc")
    assert ended.code == 0, ended
    summary = project.ended(project.start("summary", "f", "--json"))
    results = [task["result"] for task in json.loads(summary.out)["tasks"]]
    assert {each["held"] for each in results} == {results[0]["held"]}
    assert all(each["alive"] for each in results)
    said = [event.data["message"] for event in project.events("leftovers")]
    assert said == ["stopped 1 process left running"] * 3
    project.wait_until_left()
