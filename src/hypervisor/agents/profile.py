"""What Hypervisor knows of an agent program: how to start it, what it may see, how it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

STREAMS = ("claude", "codex", "gemini", "opencode", "qwen", "copilot", "text")
READ_ONLY, EDIT, FULL = "read-only", "edit", "full"
MODES = (READ_ONLY, EDIT, FULL)
NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Price(NamedTuple):
    """Money for a million tokens, in the currency of the budgets (US dollars for the built-ins)."""

    input: float
    output: float
    cached: float = 0.0


class AgentProfile(NamedTuple):
    """One agent. `argv` and `resume` are what follows the program; commandline.py fills them in.

    `{prompt}` and `{session}` are put into the word they stand in. As a whole word, `{mcp}`
    `{permissions}` `{allow}` `{turns}` `{budget}` `{schema}` `{usage}` `{pick}` (of a model) stand
    for the words of the field of that name, which may in turn hold `{value}`, and for none where
    the attempt does not ask for such a thing.
    """

    name: str
    program: str  # found on PATH, or a path
    stream: str = "text"
    argv: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()  # instead of argv, to go on with a session; (): it cannot
    prompt: str = "stdin"  # or "argument": how the prompt reaches it
    env: Mapping[str, str] = MappingProxyType({})  # set
    passes: tuple[str, ...] = ()  # names of the user's variables that it gets: the provider's
    keys: tuple[str, ...] = ()  # those of them that hold secrets, and tell accounts apart
    login: tuple[str, ...] = ()  # files below the user's home in which it keeps a login
    mcp: tuple[str, ...] = ()
    permissions: Mapping[str, tuple[str, ...]] = NOTHING  # words by mode
    allow: tuple[str, ...] = ()  # once more for each tool that is allowed beyond the mode's
    turns: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    schema: tuple[str, ...] = ()  # {value} is the schema itself, {file} a file that holds it
    pick: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()  # to write the tokens it used into the file {value}
    model: str = ""
    provider: str = ""
    capabilities: tuple[str, ...] = ()
    workers: int | None = None  # how many at once at most
    memory: int = 512 << 20  # bytes that one needs until that has been learned
    codes: Mapping[int, str] = MappingProxyType({})  # exit codes that tell a kind of trouble
    grace: float = 10.0  # seconds it may take to end after its last word
    price: Price | None = None  # where the stream does not tell the cost
    sandbox: str = ""  # what keeps it inside the folder, in words for people; "": nothing
    verified: bool = False  # run for real by the tests
    install: str = ""  # how one gets it, a command for people
