"""`--max-output` holds for commands that end before anyone looks at them."""

from tests.cli.running import run


def test_a_quick_command_that_prints_too_much_has_failed(project):
    print_much = ["--", "sh", "-c", 'head -c "$1" /dev/zero', "sh"]
    run(
        project, "-q", "--name", "b", "--max-output", "1K", *print_much, items=["9", "5000"], code=9
    )
    small, large = sorted(project.tasks("b"), key=lambda task: int(task["title"]))
    assert small["state"] == "done"
    assert (large["state"], large["reason"]) == (
        "failed",
        "output limit: 4.88 KB of output, limit 1 KB",
    )
    events = project.ok("events", "--batch", "b")
    assert "stopped at its output limit" in events
