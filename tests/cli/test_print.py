"""`hv run --print`: what the commands print, on standard output and nothing else there."""

import signal
import subprocess

import pytest

from tests.cli.conftest import until

ECHO = ["--", "sh", "-c", 'echo "out $1"', "sh"]


@pytest.fixture
def hv(project):
    return project


def printed(hv, *args, items=(), code=0):
    done = hv("run", "--name", "b", *args, stdin="".join(f"{item}\n" for item in items))
    assert done.code == code, done
    return done


class TestPiped:
    def test_nothing_but_the_output_is_on_stdout(self, hv):
        done = printed(hv, "--print", *ECHO, items="abc")
        assert sorted(done.out.splitlines()) == ["out a", "out b", "out c"]
        assert "batch b: 3 items" in done.err and "3 done" in done.err

    def test_without_print_it_is_not_shown_not_even_of_a_single_item(self, hv):
        done = printed(hv, *ECHO, items="a")
        assert "out a" not in done.out and "1 done" in done.out and done.err == ""

    def test_bytes_stay_as_they_are(self, hv):
        command = ["run", "--print", "--item", "x", "--", "printf", r"\377\000\033[2J\rend %s"]
        done = subprocess.Popen.communicate(hv.start(*command, text=False))
        assert done[0] == b"\xff\x00\x1b[2J\rend x"

    def test_in_the_order_of_the_items(self, hv):
        """The first item finishes last."""
        wait = "[ $1 != a ] || while [ ! -e d ]; do sleep 0.02; done; echo $1; touch $1"
        done = printed(
            hv, "--ordered", "--workers", "4", "--", "sh", "-c", wait, "sh", items="abcd"
        )
        assert done.out == "a\nb\nc\nd\n"

    def test_with_the_item_before_each_line(self, hv):
        done = printed(hv, "--tag", "--ordered", "--", "printf", r"one\ntwo%s", items="ab")
        assert done.out == "a\tone\na\ttwoa\nb\tone\nb\ttwob\n"

    def test_an_item_cannot_add_lines_to_a_tag(self, hv):
        done = hv("run", "--tag", "-0", "--", "echo", "{#}", stdin="a\nb\x1b[2J\0")
        assert done.out.endswith("\t1\n") and done.out.count("\n") == 1 and "\x1b" not in done.out

    def test_only_the_last_attempt_and_only_what_this_run_did(self, hv):
        first = printed(hv, "--print", *ECHO, items="ab")
        again = printed(hv, "--print", *ECHO, items="abc")
        assert len(first.out.splitlines()) == 2 and again.out == "out c\n"
        assert printed(hv, "--print", *ECHO, items="abc").out == ""

    def test_a_failure_is_printed_too(self, hv):
        done = printed(hv, "-q", "--print", "--", "sh", "-c", "echo why; exit 2", items="a", code=9)
        assert done.out == "why\n" and "1 failed" in done.err

    def test_of_a_pipeline_the_last_stage(self, hv):
        done = printed(hv, "--ordered", "--then", "sed s/out/then/ {output}", *ECHO, items="ab")
        assert done.out == "then a\nthen b\n"

    def test_of_a_function_what_it_printed_and_returned(self, hv):
        (hv.folder / "made.py").write_text(
            "def text(item):\n    print('printed', item)\n    return {'n': item}\n"
        )
        done = printed(hv, "--print", "--fn", "made:text", items="a")
        assert done.out == 'printed a\n{"n": "a"}\n'

    def test_of_an_agent_its_last_message(self, hv):
        hv.equip()
        done = printed(hv, "--print", "--agent", "fake-claude", items="a")
        (task,) = hv.tasks("b")
        assert done.out == task["result"]["summary"] + "\n"

    def test_a_reader_that_has_seen_enough_does_not_end_the_run(self, hv):
        command = ["run", "--print", "--name", "b", "--items", "-", "--", "seq", "100000"]
        with hv.start(*command, stdin=subprocess.PIPE) as process:
            process.stdin.write("\n".join(map(str, range(1, 6))))
            process.stdin.close()
            process.stdout.readline()
            process.stdout.close()
            assert process.wait() == 0
        assert hv.json("summary", "b")["states"] == {"done": 5}

    def test_interrupted_it_prints_what_has_finished(self, hv):
        work = "[ $1 = a ] || { touch b; while [ ! -e open ]; do sleep 0.02; done; }; echo out $1"
        command = ["run", "--print", "--name", "b", "--item", "a", "--item", "b", "--workers", "2"]
        with hv.start(*command, "--", "sh", "-c", work, "sh") as process:
            until((hv.folder / "b").exists, "b runs")
            assert process.stdout.readline() == "out a\n"
            process.send_signal(signal.SIGINT)
            until(lambda: hv.json("status", "b")["pauses"], "it drains")
            (hv.folder / "open").touch()
            assert process.communicate()[0] == "out b\n"
            assert process.returncode == 130


@pytest.mark.parametrize(
    "options", [["--print", "--json"], ["--tag", "--detach"], ["--no-print", "--ordered"]]
)
def test_options_that_contradict_each_other_are_refused(hv, options):
    assert hv("run", *options, "--item", "x", "--", "true").code == 2


class TestOnATerminal:
    def test_blocks_stay_above_the_live_view(self, hv):
        gate = 'echo "out $1"; [ $1 != c ] || while [ ! -e open ]; do sleep 0.02; done'
        command = ["run", "--print", "--name", "b", "--workers", "3"]
        items = [word for item in "abc" for word in ("--item", item)]
        terminal = hv.terminal(*command, *items, "--", "sh", "-c", gate, "sh")
        live = terminal.wait_for(lambda text: "2/3" in text and text.count("out ") == 3)
        lines = live.splitlines()
        bar = next(number for number, line in enumerate(lines) if "2/3" in line)
        assert sorted(lines[1:3]) == ["out a", "out b"] and bar > 2
        (hv.folder / "open").touch()
        assert terminal.wait() == 0
        lines = terminal.screen.text.splitlines()
        assert sorted(lines[1:4]) == ["out a", "out b", "out c"] and "2/3" not in lines
        assert "3 done" in terminal.screen.text

    def test_a_single_item_is_printed_without_being_asked(self, hv):
        evil = r"printf '\033[31mred\033[0m \033]0;title\007\033[2J\033[Hend'"
        terminal = hv.terminal("run", "--item", "x", "--", "sh", "-c", evil)
        assert terminal.wait() == 0
        assert "red end\n" in terminal.screen.text and "31" in terminal.screen.codes

    def test_unless_that_is_turned_off(self, hv):
        terminal = hv.terminal("run", "--no-print", "--item", "x", "--", "echo", "hello")
        assert terminal.wait() == 0
        assert "hello x" not in terminal.screen.text and "1 done" in terminal.screen.text


def test_the_same_on_postgresql(hv, postgres_url):
    hv.env["HYPERVISOR_STORE"] = postgres_url
    done = printed(hv, "--ordered", "--tag", *ECHO, items="abc")
    assert done.out == "a\tout a\nb\tout b\nc\tout c\n"
    assert hv.json("summary")["batch"] == "b"
    assert [task.split("  ")[1] for task in hv.ok("logs").split("==> ")[1:]] == [
        f"{item} (done) <==\nout {item}\n" for item in "abc"
    ]
    everything = hv.ok("events", "--batch", "b").splitlines()
    assert hv.ok("events", "--batch", "b", "--last", "3").splitlines() == everything[-3:]
