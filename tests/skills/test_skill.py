"""Reading and writing SKILL.md: every field, every refusal with its line, and hostile files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.spec import spec_data
from hypervisor.skills.fields import FIELDS, LIMITS, check_name
from hypervisor.skills.render import fields_of, skill_text
from hypervisor.skills.skill import MAX_SIZE, ItemSource, Skill, SkillRun, read_skill
from tests.support.specs import run_spec

LEAST = "name: s\ndescription: does it\nrun: {command: [ls]}\n"
AGENT = "name: s\ndescription: does it\nrun: {agent: any}\n"


def read(front: str, body: str = "Do it.\n", name: str = "s") -> Skill:
    return read_skill(f"---\n{front}\n---\n{body}".encode(), name)


def refused(front: str | bytes, body: str = "Do it.\n", name: str = "s") -> str:
    data = front if isinstance(front, bytes) else f"---\n{front}\n---\n{body}".encode()
    with pytest.raises(InvalidInput) as caught:
        read_skill(data, name)
    return str(caught.value)


class TestFields:
    def test_the_least_that_makes_one(self):
        found = read(LEAST)
        assert found[:4] == ("s", "does it", SkillRun(command=("ls",)), ItemSource())
        assert (dict(found.options), found.reduce, found.body) == ({}, None, "Do it.\n")

    def test_every_option_is_read_as_the_command_line_would(self):
        found = read(
            AGENT + "type: audit\npriority: high\nbranch: b\nworkers: auto\nstrategy: adaptive\n"
            "retries: 2\nrequires: [gpu]\nexclusive: ['{}']\nchunk-by: sender\nper: chunk\n"
            "gate: first\n"
            "write-back: receipts\npropose: true\nfail-fast: false\nprompt: ./p.md\nmodel: 4.5\n"
            "permissions: read-only\nworkspace: scratch\nallow: [Bash]\nturns: 9\nfallback: codex\n"
            "pull: 3\nschema: s.json\nthen: [[jq, ., '{result}'], [wc]]\n"
            "limits: {timeout: 15m, memory: 2G, silence: 90, max-output: 1M, budget: 5,\n"
            "  task-budget: $0.5, tokens: 1.5M, task-tokens: 200k}\n"
        )
        assert dict(found.options) == {
            "type": "audit",
            "priority": "high",
            "branch": "b",
            "workers": None,
            "strategy": "adaptive",
            "retries": 2,
            "requires": ["gpu"],
            "exclusive": ["{}"],
            "chunk_by": "sender",
            "per": "chunk",
            "gate": "first",
            "write_back": "receipts",
            "propose": True,
            "fail_fast": False,
            "prompt": "p.md",
            "model": "4.5",
            "permissions": "read-only",
            "scratch": True,
            "allow": ["Bash"],
            "turns": 9,
            "fallback": "codex",
            "pull": 3,
            "schema": "s.json",
            "then": ["jq . '{result}'", "wc"],
            "timeout": 900_000,
            "memory": 2 << 30,
            "silence": 90_000,
            "max_output": 1 << 20,
            "budget": 5_000_000,
            "task_budget": 500_000,
            "tokens": 1_500_000,
            "task_tokens": 200_000,
        }
        assert found.files == ("p.md", "s.json")

    def test_options_of_commands_and_functions(self):
        found = read(
            "name: s\ndescription: d\nrun: {function: 'a.b:c'}\nresult: json\nstdin: item\n"
            "shell: true\npython: /usr/bin/python3\nclean-env: true\nclaim: 10\nworkers: 4\n"
            "chunk: month\n"
        )
        assert found.run == SkillRun(function="a.b:c")
        assert dict(found.options) == {
            "result": "json",
            "stdin": "item",
            "shell": True,
            "python": "/usr/bin/python3",
            "clean_env": True,
            "claim": 10,
            "workers": 4,
            "chunk": "month",
        }

    def test_items_and_what_comes_at_the_end(self):
        found = read(
            AGENT + "items: {file: lists/a.jsonl, format: jsonl}\n"
            "reduce:\n  agent: claude\n  prompt: sum.md\n"
        )
        assert found.items == ItemSource("jsonl", file="lists/a.jsonl")
        assert found.reduce == SkillRun(agent="claude", prompt="sum.md")
        assert found.files == ("lists/a.jsonl", "sum.md")

    def test_a_script_of_its_own_is_one_of_its_files(self):
        assert read("name: s\ndescription: d\nrun: {command: [./x/y.sh, 1]}").files == ("x/y.sh",)

    def test_what_a_shell_reads_names_no_file_of_the_folder(self):
        front = "name: s\ndescription: d\nshell: true\nrun: {command: ['./../x {} | wc']}"
        assert read(front).files == ()

    def test_no_two_fields_are_the_same_option(self):
        options = [field.option for field in (*FIELDS.values(), *LIMITS.values())]
        assert len(set(options)) == len(options)


class TestRefusals:
    @pytest.mark.parametrize(
        ("front", "line", "said"),
        [
            (LEAST + "gaet: each", 5, "unknown field 'gaet'; did you mean gate?"),
            (LEAST + "limits:\n  time: 5", 6, "unknown field 'limits.time'"),
            (LEAST + "limits: 5", 5, "limits must hold fields"),
            (LEAST + "limits:\n  timeout: soon", 6, "limits.timeout: invalid duration 'soon'"),
            (LEAST + "limits:\n\n  memory: yes", 7, "limits.memory"),
            (LEAST + "gate: no", 5, "gate must be one of"),
            (LEAST + "retries: -1", 5, "retries must be a whole number"),
            (LEAST + "workers: many", 5, "workers must be"),
            (LEAST + "propose: perhaps", 5, "propose must be true or false"),
            (LEAST + "prompt: p.md", 5, "prompt works only with an agent"),
            (LEAST + "limits: {budget: 5}", 5, "limits.budget works only with an agent"),
            (AGENT + "shell: true", 5, "shell works only with a command or a function"),
            (AGENT + "model: true", 5, "model must be text"),
            (AGENT + "allow: Bash", 5, "allow must be a list"),
            (AGENT + "requires: [a b]", 5, "must not contain spaces"),
            (LEAST + 'branch: "a b"', 5, "branch 'a b' must not contain spaces"),
            (
                LEAST + "chunk: month\nchunk-size: 5",
                6,
                "chunk and chunk-size cannot be used together",
            ),
            (LEAST + "items: {glob: 'a', file: b}", 5, "cannot be used together"),
            (LEAST + "items: {format: xml}", 5, "items.format must be one of"),
            (LEAST + "items: {paths: true}", 5, "needs the format tasks"),
            (
                LEAST + "reduce: {agent: any}",
                5,
                "reduce.prompt and reduce.agent must be used together",
            ),
            (LEAST + "reduce: {command: [a], function: 'b:c'}", 5, "exactly one of"),
            (LEAST + "then: [jq]", 5, "then must be a list of words"),
            (LEAST + "then: [[./x]]", 5, "only run and reduce can use files of the folder"),
            ("name: s\ndescription: d\nrun: {}", 4, "run must have exactly one of"),
            ("name: s\ndescription: d\nrun: ls", 4, "run must hold fields"),
            ("name: s\ndescription: d\nrun: {command: ls}", 4, "a list of words"),
            ("name: s\ndescription: d\nrun: {command: [{}]}", 4, "put each in quotes"),
            ("name: s\ndescription: d\nrun: {function: module}", 4, "package.module:function"),
            ("name: s\nrun: {command: [ls]}", 1, "description is missing"),
            ("description: d\nrun: {command: [ls]}", 1, "name is missing"),
            ("name: s\ndescription: ''\nrun: {command: [ls]}", 3, "description must be text"),
            ('name: s\ndescription: "a\\e[31m"\nrun: {command: [ls]}', 3, "control characters"),
            ("name: other\ndescription: d\nrun: {command: [ls]}", 2, "they must be the same"),
            ("name: S\ndescription: d\nrun: {command: [ls]}", 2, "invalid skill name"),
            ("name: s\nname: s", 3, "duplicate key"),
            ("x: &a {gate: each}\nname: s", 2, "unknown field 'x'"),
            ("name: s\n<<: {gate: each}", 3, "`<<` is not supported here"),
            ("- name", 2, "not a list of `key: value`"),
            ("name: [", 3, "not valid YAML"),
            ("", 1, "the front matter is empty"),
        ],
    )
    def test_what_is_wrong_is_reported_with_its_line(self, front, line, said):
        told = refused(front)
        assert told.startswith(f"line {line}: ") and said in told, told

    @pytest.mark.parametrize(
        "path", ["/etc/passwd", "../p.md", "a/../../p.md", "~/p.md", "a//b", ".", "..", "a/./b"]
    )
    @pytest.mark.parametrize(
        "front",
        [
            AGENT + "prompt: PATH",
            AGENT + "schema: PATH",
            LEAST + "items: {file: PATH}",
            AGENT + "reduce: {agent: any, prompt: PATH}",
        ],
    )
    def test_no_file_lies_outside_the_folder(self, front, path):
        assert "in the skill's folder" in refused(front.replace("PATH", path))

    @pytest.mark.parametrize("pattern", ["/etc/*", "../**", "a/../../*", "~/*"])
    def test_no_pattern_leads_out_of_the_folder(self, pattern):
        assert "below the folder" in refused(LEAST + f"items: {{glob: '{pattern}'}}")

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "A", "-a", "ä", "a" * 65, "a\n"])
    def test_a_name_leads_nowhere(self, name):
        with pytest.raises(InvalidInput):
            check_name(name)

    @pytest.mark.parametrize("word", ["./../x", "./a/../../x", "./", "./."])
    def test_no_script_lies_outside_the_folder(self, word):
        front = "name: s\ndescription: d\nrun: {command: ['%s']}"
        assert "in the skill's folder" in refused(front % word)
        assert "in the skill's folder" in refused(LEAST + f"reduce: {{command: ['{word}']}}")

    def test_an_agent_needs_a_prompt(self):
        assert "no prompt" in refused(AGENT, body="\n \n")


class TestHostile:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"---\n",
            b"no front matter\n",
            b"\0" * 100,
            b"---\nname: s\n",
            b"\xff\xfe---\n",
            b"---\n" + LEAST.encode() + b"---\n\xff\n",
            b"---\n" + LEAST.encode() + b"---\n\0\n",
            b"---\n" + b"[" * 100_000 + b"\n---\n",
            b"---\n" + b"a: " * 2_000 + b"\n---\n",
            b"---\n" + b"x" * (300 << 10) + b"\n---\n",
            b"---\n---\n" + b"x" * MAX_SIZE,
            b"---\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nname: s\n---\n",
            b"---\nname: s\ndescription: d\nrun: &r {command: [ls], agent: *r}\n---\n",
        ],
    )
    def test_is_refused_in_one_line(self, data):
        told = refused(data)
        assert told.isprintable() and len(told) < 600, told

    def test_the_line_of_what_is_not_text_counts_from_the_top(self):
        told = refused(b"---\n" + LEAST.encode() + b"---\none\n\xff\n")
        assert told.startswith("line 7: not valid UTF-8")

    def test_aliases_that_multiply_are_refused(self):
        layers = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        told = refused(LEAST + f"requires: &a0 [x]\n{layers}")
        assert "unknown" in told or "repeat" in told

    def test_a_tag_makes_nothing_but_text(self):
        front = "name: !!python/object:os.system s\ndescription: d\nrun: {command: [ls]}"
        assert read(front).name == "s"

    def test_a_deep_command_is_refused(self):
        assert "words" in refused(
            "name: s\ndescription: d\nrun: {command: " + "[" * 40 + "]" * 40 + "}"
        )

    @given(st.binary(max_size=400))
    def test_any_bytes_are_read_or_refused(self, data):
        for whole in (data, b"---\n" + data + b"\n---\n"):
            try:
                read_skill(whole, "s")
            except InvalidInput as error:
                assert str(error).isprintable()


OPTIONS = {"time": "timeout", "output": "max_output", "workspace": "scratch"}  # by stored field
NO_OPTIONS = ("cwd", "mode")  # the folder is that of each run; --pull says the mode


class TestWriting:
    @pytest.mark.parametrize(
        "spec",
        [
            run_spec("/x", ("echo", "{}", "a: b", "- c", "#d", "'", '"', "yes", "12", "é\t")),
            run_spec("/x", ("a {} > {.}",), None, True, stdin="item", clean_env=True, claim=5),
            run_spec("/x", function="m:f", python="/usr/bin/python3", workers=3, time=90_000),
            run_spec("/x", ("a",), time=1, memory=(1 << 30) + 1, silence=60_000, output=1 << 20),
            run_spec("/x", ("a",), result="json", gate="each", strategy="adaptive", fail_fast=True),
            run_spec(
                "/x",
                agent="auto",
                budget=5_250_000,
                tokens=1_500,
                task_budget=1,
                task_tokens=7,
                allow=("Bash(ls:*)",),
                model="m-1",
                turns=3,
                fallback="codex",
            ),
            run_spec(
                "/x",
                agent="claude",
                permissions="full",
                workspace="scratch",
                schema="{}",
                mode="pull",
                pull=4,
                propose=True,
            ),
        ],
    )
    def test_what_is_written_of_a_batch_reads_as_its_options(self, spec):
        front = {"name": "s", "description": "d: # x"} | fields_of(spec)
        found = read_skill(skill_text(front, "text").encode(), "s")

        assert found.description == "d: # x"
        stored = spec_data(spec)
        assert found.run.command == tuple(stored.pop("command", ()))
        assert found.run.function == stored.pop("function", "")
        agent = stored.pop("agent", "")
        assert found.run.agent == ("any" if agent == "auto" else agent)
        options = {OPTIONS.get(name, name): value for name, value in stored.items()}
        if agent:
            options["prompt"] = "prompt.md"
        if "scratch" in options:
            options["scratch"] = True
        if "schema" in options:
            options["schema"] = "schema.json"
        assert dict(found.options) == {k: v for k, v in options.items() if k not in NO_OPTIONS}
