"""Wrong usage: one line that names the mistake and the next step, and the right exit code."""

import os
import re
import tempfile
from pathlib import Path

import pytest

import hypervisor
from hypervisor.core.errors import EXIT_CODES
from tests.cli.conftest import Cli, assert_one_clear_line

NOBODY = 65534

INVALID = EXIT_CODES["invalid_input"]
NOT_FOUND = EXIT_CODES["not_found"]
WRONG_STATE = EXIT_CODES["wrong_state"]
ENDED = EXIT_CODES["lease_lost"]
STORE = EXIT_CODES["store_broken"]
AGENT = EXIT_CODES["agent_not_ready"]

# What a message must offer: a command, an option, an example, the allowed values, or the place of
# the mistake. A file or program that is missing only has to be named.
NEXT_STEP = re.compile(
    r"hv [a-z]+|(?<!\S)--[a-z]+|\b(try|use|choose from|one of|between|must be|[Dd]id you mean)\b|"
    r"npm install|\bline \d+|claim again|stop working|at least|or more|"
    r"TASK\.ATTEMPT|module:function|\[agents\.|not found: |[Nn]o such |cannot be read: |"
    r"no folder|permissions"
)
TRANSLATED = re.compile(
    r"(?<!there )\bis no (?!longer)|"
    r"\b(shall|anew|so many|goes on|what came of|besides|somebody|rests?|told)\b"
)

# The words of a command, its exit code, and what its message must contain.
WRONG = [
    ("statsu", INVALID, ["statsu", "hv status"]),
    ("frobnicate", INVALID, ["frobnicate", "hv --help"]),
    ("ls --sate ready", INVALID, ["--sate", "hv ls --help"]),
    ("run --nmae night -- true", INVALID, ["--nmae", "hv run --help"]),
    ("run notes*.md -- wc", INVALID, ["--items 'notes*.md'"]),
    ("run echo -- wc", INVALID, ["--items echo"]),
    ("ls extra", INVALID, ["extra", "hv ls --help"]),
    ("ls --batch nope", NOT_FOUND, ["nope"]),
    ("logs nope", NOT_FOUND, ["nope", "hv ls"]),
    ("report nope", NOT_FOUND, ["nope"]),
    ("review nope --approve", NOT_FOUND, ["nope"]),
    ("pause nope", NOT_FOUND, ["nope"]),
    ("scale 4 nope", NOT_FOUND, ["nope"]),
    ("skills new mine --from nope", NOT_FOUND, ["nope"]),
    ("show zzzzzzzzzzzz", NOT_FOUND, ["zzzzzzzzzzzz", "hv ls"]),
    ("show 1", INVALID, ["1", "4"]),
    ("cancel zzzzzzzzzzzz", NOT_FOUND, ["zzzzzzzzzzzz", "hv ls"]),
    ("retry {queued}", WRONG_STATE, ["{queued}", "ready", "hv cancel {queued}"]),
    ("ls --state unknown", INVALID, ["unknown", "ready", "in review", "cancelled"]),
    ("ls --priority urgent", INVALID, ["urgent", "critical", "low"]),
    ("results night --format xml", INVALID, ["xml", "csv", "jsonl"]),
    ("run --item a --agent nobody --prompt prompt.md", INVALID, ["nobody", "claude"]),
    ("run --item a --agent cluade --prompt prompt.md", INVALID, ["cluade", "claude"]),
    ("run --item a --agent claude --prompt prompt.md", AGENT, ["claude", "npm install"]),
    ("skills show nothing", NOT_FOUND, ["nothing", "hv skills"]),
    ("install emacs", INVALID, ["emacs", "claude", "codex"]),
    ("completion tcsh", INVALID, ["tcsh", "bash", "zsh", "fish"]),
    ("claim --lease soon", INVALID, ["--lease", "soon", "15m"]),
    ("add x --in 5y", INVALID, ["--in", "5y", "15m"]),
    ("run --item a --timeout 1x -- true", INVALID, ["--timeout", "1x", "15m"]),
    ("add x --at tomorrow", INVALID, ["--at", "tomorrow", "2027-01-31T09:00"]),
    ("run --item a --memory lots -- true", INVALID, ["--memory", "lots", "2G"]),
    ("run --item a --budget lots -- true", INVALID, ["--budget", "lots", "0.50"]),
    ("run --item a --workers x -- true", INVALID, ["--workers", "x", "auto"]),
    ("ls --limit ten", INVALID, ["--limit", "ten"]),
    ("events --since yesterday", INVALID, ["--since", "yesterday"]),
    ("serve --port 80000", INVALID, ["80000", "65535"]),
    ("run --item a --strategy fast -- true", INVALID, ["fast", "adaptive"]),
    ("run --item a --permissions all -- true", INVALID, ["all", "read-only", "full"]),
    ("run --item a --chunk decade -- true", INVALID, ["decade", "month"]),
    ("run --item a", INVALID, ["--fn"]),
    ("add", INVALID, ["--from"]),
    ("add x --data {", INVALID, ["--data", "JSON", "line 1"]),
    ("add --from broken.jsonl", INVALID, ["line 1", "JSON"]),
    ("add --from broken.csv", INVALID, ["line 2"]),
    ("config nonsense", INVALID, ["nonsense", "path", "init"]),
    ("receipt nonsense", INVALID, ["nonsense", "verify"]),
    ("config init", WRONG_STATE, ["config.toml", "--force"]),
    ("apply night", INVALID, ["not a terminal", "--yes", "--dry-run"]),
    ("undo night", INVALID, ["not a terminal", "--yes"]),
    ("done not-a-token", INVALID, ["not-a-token", "TASK.ATTEMPT."]),
    ("fail {ended} why", ENDED, ["{ended}", "claim again"]),
    ("heartbeat {ended}", ENDED, ["{ended}"]),
    ("--store nowhere.db ls", NOT_FOUND, ["nowhere.db", "hv add"]),
    ("--store prompt.md ls", STORE, ["prompt.md", "--store"]),
    ("run --item a --cwd nowhere -- true", INVALID, ["nowhere"]),
    ("run --item a -- no-such-program", INVALID, ["no-such-program"]),
    ("run --items missing.csv -- true", INVALID, ["missing.csv"]),
    ("run --item a --fn wrong", INVALID, ["wrong", "package.module:function"]),
    ("update {queued}", INVALID, ["hv update --help"]),
    ("batch", INVALID, ["batch", "hv batches"]),
    ("ls --bacth night", INVALID, ["--bacth", "--batch"]),
    ("show zzzz", NOT_FOUND, ["zzzz", "5 characters", "hv ls"]),
    ("run --items people.csv -- echo {nmae}", INVALID, ["{nmae}", "name, age"]),
    ("logs {queued} --failed", INVALID, ["--failed", "hv logs BATCH"]),
    ("completion", INVALID, ["hv completion bash"]),
    ("retry", INVALID, ["--state", "--all"]),
    ("pause", INVALID, ["--type", "--all"]),
]


@pytest.fixture
def place(hv):
    """A store with a task that is queued, one that is done, and files that are not as they seem."""
    hv.names = {"ended": "", "queued": hv.add("x", "--batch", "night")}
    hv.names["ended"] = hv.claim()
    hv.ok("done", hv.names["ended"])
    hv.names["queued"] = hv.add("y")
    (hv.folder / "prompt.md").write_text("Review {item}.")
    (hv.folder / "broken.jsonl").write_text('{"title": \n')
    (hv.folder / "people.csv").write_text("name,age\nann,3\n")
    (hv.folder / "broken.csv").write_text("title,body\nonly one\n")
    return hv


def filled(text, names):
    return re.sub(r"\{(ended|queued)\}", lambda match: names[match[1]], text)


def assert_helpful(line, *parts):
    for part in parts:
        assert part in line
    assert NEXT_STEP.search(line), line
    assert not TRANSLATED.search(line), line


@pytest.mark.parametrize("command, code, parts", WRONG, ids=[row[0] for row in WRONG])
def test_wrong_usage(place, command, code, parts):
    line = place.refused(code, *(filled(word, place.names) for word in command.split()))
    assert_helpful(line, *(filled(part, place.names) for part in parts))


@pytest.mark.parametrize(
    "config, parts",
    [
        ("[run]\nworkrs = 4", ["run.workrs", "run.workers"]),
        ("[rum]\nworkers = 4", ["rum", "run"]),
        ("[run]\nworkers = 'many'", ["run.workers", "auto"]),
        ("[run]\nnice = 40", ["run.nice", "0 and 19"]),
        ("[governor]\ncpu_warning = 60", ["governor.cpu_warning", "0 and 1"]),
        ("[agents.mine]\nprogramm = 'x'", ["agents.mine.programm", "agents.mine.program?"]),
        ("workers = \n", ["line 1"]),
    ],
)
def test_wrong_config(hv, config, parts):
    (hv.store.parent / "config.toml").write_text(config)
    assert_helpful(hv.refused(INVALID, "status"), "config.toml", *parts)


@pytest.mark.parametrize("command", ["ls", "claim", "status", "logs", "report", "events", "top"])
def test_no_store(bare, command):
    assert_helpful(bare.refused(NOT_FOUND, command), ".hypervisor", "hv add")


@pytest.mark.parametrize("command", ["logs", "summary", "results", "report"])
def test_no_batch_yet(hv, command):
    assert_helpful(hv.refused(NOT_FOUND, command), "batch", "hv run")


@pytest.fixture
def shared_folder():
    """A folder that every user can reach; those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="hv") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_store_without_the_right_to_write(shared_folder):
    path = shared_folder / "store.db"
    hypervisor.open(path, relaxed=True).close()
    path.chmod(0o444)
    hv = Cli(shared_folder)
    hv.uid = NOBODY if os.getuid() == 0 else None
    code, out, err = hv("--store", str(path), "add", "x")
    assert (code, out) == (STORE, "")
    assert_one_clear_line(err)
    assert_helpful(err, str(path), "permissions")
