"""Scripts for a shell: an item stays one word, whatever it says."""

import os
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Item, quote
from tests.inputs.hostile_items import ITEM, parse_script

SHELLS = [path for path in ("/bin/sh", "/bin/bash") if os.path.exists(path)]


def run(text, item, shell="/bin/sh", **more):
    argv = parse_script(text).render(Item(item))
    assert argv[:2] == ["/bin/sh", "-c"] and len(argv) == 3
    done = subprocess.run([shell, *argv[1:]], capture_output=True, timeout=180, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@settings(max_examples=300, deadline=None)
@given(ITEM)
@example("")
@example("-n")
@example("'")
@example("\n")
@example("a'b\"c`d$(e)\\")
@example("''\\''")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_gives_back_exactly_the_item(shell, text):
    assert run("printf %s {}", text, shell) == text


@settings(max_examples=50, deadline=None)
@given(ITEM)
def test_wherever_it_may_stand(text):
    script = """item={}; x=a{}$(printf %s {}; echo .)"b"{}; printf '%s' "$item$x"; # it's
        case {} in {}) printf %s {} ;; esac"""
    assert run(script, text) == text + f"a{text}{text}.b{text}" + text


@settings(max_examples=50, deadline=None)
@given(ITEM)
def test_without_a_placeholder_a_script_gets_it_as_its_last_argument(text):
    assert run("printf '%s'", text) == text
    assert run("printf '%s'  \n ", text) == text


def test_words_of_a_script_are_joined_by_spaces():
    argv = parse_script("cat", "{}", "| sort >", "{.}.txt").render(Item("it's.csv"))
    assert argv == ["/bin/sh", "-c", """cat 'it'"'"'s.csv' | sort > 'it'"'"'s'.txt"""]


@pytest.mark.parametrize("text", ["2", "x", "a=b", "if"])
def test_a_plain_item_is_quoted_too(text, tmp_path):
    assert quote(text) == f"'{text}'"
    run("echo {}>out; x=1; echo $x{} >>out", text, cwd=tmp_path)
    assert (tmp_path / "out").read_text() == f"{text}\n1{text}\n"


def test_what_belongs_to_the_shell_is_left_to_it():
    script = """x='1 2'; echo "${x}" ${x%2}$((1 + 1)) "$(echo 3)" `echo 4` 'it'"'"'s' \\' $# {}"""
    assert run(script, "a  b") == "1 2 1 2 3 4 it's ' 0 a  b\n"


@pytest.mark.parametrize(
    "script, where",
    [
        ("echo '{}'", "inside quotes"),
        ('echo "{}"', "inside quotes"),
        ('echo "a {.} b"', "inside quotes"),
        ("echo 'a'\"b {} c\"", "inside quotes"),
        ("echo $'{}'", "inside quotes"),
        ('echo "$(cat {})"', "inside quotes"),
        ('echo "${x:-{}}"', "inside quotes"),
        ('echo "`cat {}`"', "after"),
        ("echo `cat {}`", "inside backticks"),
        ("echo \\{}", "after a backslash"),
        ("echo ${}", "after a dollar sign"),
        ("echo $\\\n{}", "after"),
        ("echo ${x:-'{}'}", "after"),
        ("echo ${x:-{}}", "inside ${…}"),
        ("echo $(({} + 1))", "inside ((…))"),
        ("(({} + 1))", "inside ((…))"),
        ("echo $[{}]", "after '$[{}]'"),
        ("echo a # {}", "in a comment"),
        ("# {}\necho", "in a comment"),
        ("cat <<E\n{}\nE", "after '<<E"),
        ("cat <\\\n<E\n{}\nE", "after"),
        ("cat <<< {}", "after"),
        ('echo "$(echo "a {}")"', "after"),
        ('echo "$(case x in x) echo "{}";; esac)"', "after"),
        ("echo $'\\'' {} '", "after"),
        ("echo 'open {}", "after"),
        ('echo "open {}', "after"),
        ("echo $(a)#'{}'", "after"),
        ("echo a # comment", "in a comment"),
        ("echo 'open", "after"),
    ],
)
def test_a_placeholder_where_its_quotes_would_not_hold(script, where):
    with pytest.raises(InvalidInput) as error:
        parse_script(script)
    assert where in str(error.value) and "Remove the quotes around it" in str(error.value)


@pytest.mark.parametrize(
    "script",
    [
        "echo a\\ #{}",
        "echo a#{}",
        "echo ''#{}",
        "echo a\\\n#{}",
        "echo \\\\{}",
        "echo {}#it\\'s",
        "echo '#' {}",
        "echo \\# {}",
        "echo $# {}",
        "# it's\necho {}",
        "echo {} # it's '",
        'echo {} "$(echo "a")"',
        "echo {} <<E\n'\nE",
        "echo $IFS$'\\n' {}",
    ],
)
def test_a_placeholder_where_they_do(script):
    assert "a  b" in run(script, "a  b", SHELLS[-1])


@pytest.mark.parametrize("script", ["true;", "true &", "true |", "( "])
def test_a_script_that_would_run_the_item_as_a_command(script):
    with pytest.raises(InvalidInput, match="has no placeholder for the item"):
        parse_script(script)


FRAGMENTS = [
    "{}",
    "{}",
    " ",
    " ",
    "\n",
    "'",
    '"',
    "\\",
    "$",
    "`",
    "(",
    ")",
    "((",
    "))",
    "$(",
    "${x",
    "}",
    "#",
    "<<E\n",
    "E\n",
    "<",
    "echo ",
    ";",
    "|",
    "case x in x) ",
    ";; esac",
    "$'",
    "\\\n",
    "item={};",
    '"$(echo "',
    '")"',
    '"${x:-',
    "`echo ",
    " # it's\n",
    "if :; then ",
    "\nfi\n",
    "$[",
    "]",
    "x",
]
ATTACKS = [
    "'; : >CANARY; '",
    '"; : >CANARY; "',
    "$(: >CANARY)",
    "`: >CANARY`",
    "\n: >CANARY\n",
    "\\'; : >CANARY; \\'",
    "\nE\n: >CANARY\n",
    "a[$(: >CANARY)]",
    "x)\n: >CANARY\n",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=12).map("".join))
def test_no_accepted_script_runs_what_an_item_says(tmp_path_factory, script):
    folder = tmp_path_factory.getbasetemp()
    try:
        template = parse_script("echo", script)
    except InvalidInput:
        return
    for attack in ATTACKS:
        script = template.render(Item(attack))[2]
        for shell in SHELLS:
            subprocess.run(
                [shell, "-c", script],
                cwd=folder,
                env={"PATH": "/nonexistent"},
                timeout=180,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            assert not (folder / "CANARY").exists(), script
