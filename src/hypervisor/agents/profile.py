"""Agent profiles: how to start a program, what it may see, the format of its output."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from hypervisor.core.records import NamedTuple
from hypervisor.runs.spec import Permissions

if TYPE_CHECKING:
    from hypervisor.agents.stream_state import ErrorKind

Stream = Literal["claude", "codex", "gemini", "opencode", "qwen", "copilot", "acp", "text"]
STREAMS: tuple[Stream, ...] = get_args(Stream)
ACP: Stream = "acp"  # run by acp/bridge.py
LOGIN = "login"
NO_PERMISSIONS: Mapping[Permissions, tuple[str, ...]] = MappingProxyType({})


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float = 0.0


class AgentProfile(NamedTuple):
    """One agent. `argv` and `resume` are the arguments; command_line.py fills them in.

    `{prompt}` and `{session}` may be part of a word. As a whole word, `{mcp}` `{permissions}`
    `{allow}` `{turns}` `{budget}` `{schema}` `{usage}` `{pick}` (of a model) are replaced by the
    words of the field of that name, in which `{value}` stands for the value, or by nothing if the
    option is not set.
    """

    name: str
    program: str  # found on PATH, or a path
    stream: Stream = "text"
    argv: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()  # used instead of argv to resume a session; (): not supported
    attach: tuple[str, ...] = ()  # to resume a session in a terminal; (): not supported
    prompt: Literal["stdin", "argument"] = "stdin"  # how it gets the prompt
    env: Mapping[str, str] = MappingProxyType({})  # set
    passes: tuple[str, ...] = ()  # names of the user's variables that it gets
    keys: tuple[str, ...] = ()  # those that are secrets, and identify accounts
    login: tuple[str, ...] = ()  # login files below the user's home
    gateway: bool = True  # with an API key: call its model through the gateway
    calls_as: Stream = "text"  # if it speaks ACP: the program whose settings lead to its model
    mcp: tuple[str, ...] = ()
    permissions: Mapping[Permissions, tuple[str, ...]] = NO_PERMISSIONS  # words by mode
    modes: Mapping[Permissions, str] = MappingProxyType({})  # of its sessions, if it speaks ACP
    allow: tuple[str, ...] = ()  # repeated for each additionally allowed tool
    turns: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    schema: tuple[str, ...] = ()  # {value} is the schema itself, {file} a file with it
    pick: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()  # makes it write its token usage to the file {value}
    model: str = ""
    provider: str = ""
    capabilities: tuple[str, ...] = ()
    workers: int | None = None  # maximum number running at the same time
    memory: int = 512 << 20  # bytes; used until its need has been learned
    codes: Mapping[int, ErrorKind] = MappingProxyType({})  # exit codes that mean a kind of error
    grace: float = 10.0  # seconds it may take to exit after its last message
    price: Price | None = None  # if the stream has no cost
    sandbox: str = ""  # the level of sandbox; "": as configured
    own_sandbox: str = ""  # what its program does to stay in the folder, as text; "": nothing
    hosts: tuple[str, ...] = ()  # that it needs to reach its provider
    verified: bool = False  # tested with the real program
    install: str = ""  # the command to install it

    @property
    def can_resume(self) -> bool:
        """Agents that speak ACP are asked; those that cannot get a new session."""
        return bool(self.resume) or self.stream == ACP


def account_of(profile: AgentProfile, env: Mapping[str, str]) -> str:
    """The account whose quota is used: the provider and a short digest of the key, which
    distinguishes keys without revealing them."""
    provider = profile.provider or profile.name
    values = [env[name] for name in profile.keys if env.get(name)]
    if not values:
        return f"{provider}:{LOGIN}"
    from hashlib import blake2b

    joined = "\0".join(values).encode("utf-8", "surrogateescape")
    return f"{provider}:{blake2b(joined, digest_size=4).hexdigest()}"
