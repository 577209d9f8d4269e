"""What one run of an agent is given: its arguments, its environment, its files. Nothing more.

The user's configuration is not seen: HOME is a private folder, with links to the login files that
the profile names. Secrets reach the program through its environment and the files of that folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from hypervisor.agents import mcp_config
from hypervisor.agents.command_line import LaunchOptions, arguments
from hypervisor.agents.discovery import locate
from hypervisor.agents.final_report import REPORT_SCHEMA, schema_with
from hypervisor.agents.homes import Home, link_login
from hypervisor.agents.mcp_config import McpAccess, write_own
from hypervisor.agents.profile import AgentProfile
from hypervisor.agents.secrets import marks_of
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import with_usage
from hypervisor.agents.transcript_writer import secrets_in
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import LONGEST_WORD
from hypervisor.queue.task import Json
from hypervisor.runs.spec import RunSpec

PROXIES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy"),
)
# Of the user's variables: what an agent needs to find its way about and to reach its provider.
PASSED = (
    *("PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ"),
    *(*PROXIES, "NO_PROXY", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
)
SCHEMA_FILE = "report-schema.json"
SECRET_NAMES = ("token", "key", "secret", "password", "refresh", "access")
LARGEST_LOGIN = 1 << 20
USAGE_FILE = "usage.json"
LARGEST_USAGE = 1 << 20


class AgentSetup(NamedTuple):
    """What an agent is started with: the same for all runs of a worker, but for `mcp` and the
    folder of `spec`."""

    profile: AgentProfile
    spec: RunSpec
    given: Mapping[str, str]  # the user's environment
    mcp: McpAccess
    program: str = ""  # "" if it was not found
    schema: str = ""  # of a report, as text

    @property
    def problem(self) -> str:
        """Why it cannot be started at all."""
        if self.program:
            return ""
        name, program, install = self.profile.name, self.profile.program, self.profile.install
        how = f" Install it ({install}) and" if install else " Install it and"
        return (
            f"{name} is not installed: there is no program {program} on PATH."
            f"{how} run the batch again."
        )


def setup_for(
    profile: AgentProfile, spec: RunSpec, given: Mapping[str, str], mcp: McpAccess
) -> AgentSetup:
    schema = ""
    if profile.schema and spec.mode != "pull":
        report = schema_with(json.loads(spec.schema)) if spec.schema else REPORT_SCHEMA
        schema = json.dumps(report, separators=(",", ":"))
    return AgentSetup(profile, spec, given, mcp, locate(profile, given), schema)


class Prompt(NamedTuple):
    """What an agent is told, the session it goes on with, and the money it may spend."""

    text: str
    session: str = ""
    budget: int | None = None


class Launch(NamedTuple):
    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: bytes | None
    cwd: str
    secrets: frozenset[str]  # what must not be seen in anything it prints


def prepare_launch(setup: AgentSetup, home: Home, prompt: Prompt) -> Launch:
    """Make the home ready and say how to start. InvalidInput: with this profile it cannot be."""
    profile, spec, given = setup.profile, setup.spec, setup.given
    if profile.permissions and spec.permissions not in profile.permissions:
        raise InvalidInput(
            f"{profile.name} has no permission mode {spec.permissions}: "
            f"use one of {', '.join(profile.permissions)}."
        )
    link_login(home.home, given.get("HOME", ""), profile.login)
    secrets = secrets_of(profile, given, setup.mcp)
    hide = {"HV_HIDE": marks_of(secrets, os.urandom(16))} if secrets else {}
    written = mcp_config.write(profile, home.home, setup.mcp.env(given) | hide, spec, given)
    options = LaunchOptions(
        prompt=prompt.text,
        session=prompt.session,
        permissions=spec.permissions,
        allow=spec.allow,
        mcp=written.path,
        model=spec.model,
        turns=spec.turns,
        budget=prompt.budget,
        schema=setup.schema,
        schema_file=_schema_file(home, setup.schema),
        usage=_usage_file(home),
    )
    argv = (setup.program or profile.program, *arguments(profile, options))
    _refuse_long(profile, argv)
    env = agent_environment(profile, given) | written.env
    env |= {"HOME": home.home, "TMPDIR": home.tmp}
    stdin = prompt.text.encode("utf-8", "surrogateescape") if profile.prompt == "stdin" else None
    return Launch(argv, env, stdin, spec.cwd, secrets)


def agent_environment(profile: AgentProfile, given: Mapping[str, str]) -> dict[str, str]:
    """What an agent gets of the user's variables, and what its profile sets. No home yet."""
    wanted = {*PASSED, *profile.passes, *profile.keys}
    kept = {
        name: value for name, value in given.items() if name in wanted or name.startswith("LC_")
    }
    return {"PATH": os.defpath, **kept, **profile.env}


def secrets_of(
    profile: AgentProfile, given: Mapping[str, str], mcp: McpAccess | None = None
) -> frozenset[str]:
    """All that the agent can see and nobody may read in its words. A claim's token is known by
    its form."""
    names = (*profile.keys, "PGPASSWORD")
    found = secrets_in([given[name] for name in names if given.get(name)])
    addresses = [given[name] for name in PROXIES if given.get(name)]
    if mcp is not None:
        addresses.append(mcp.store)
    found |= secrets_in([each for each in addresses if "@" in each])
    return frozenset(found | login_secrets(given.get("HOME", ""), profile.login))


def login_secrets(user_home: str, files: Iterable[str]) -> set[str]:
    """What the login files hold under names that tell it is secret."""
    found: set[str] = set()
    for name in files if user_home else ():
        path = os.path.join(user_home, name)
        with suppress(OSError, ValueError, RecursionError), open(path, encoding="utf-8") as file:
            found |= set(_secrets_of(json.loads(file.read(LARGEST_LOGIN))))
    return found


def _secrets_of(value: Json, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, str) and is_secret:
        yield value
    pairs = value.items() if isinstance(value, dict) else ()
    for name, each in pairs:
        yield from _secrets_of(each, any(word in str(name).lower() for word in SECRET_NAMES))
    for each in value if isinstance(value, list) else ():
        yield from _secrets_of(each, is_secret)


def _refuse_long(profile: AgentProfile, argv: tuple[str, ...]) -> None:
    longest = max(len(os.fsencode(word)) for word in argv)
    if longest > LONGEST_WORD:
        raise InvalidInput(
            f"the prompt is too long for {profile.name}, which takes it as an argument: "
            f"{longest:,} bytes, at most {LONGEST_WORD:,}."
        )


def add_file_usage(profile: AgentProfile, home: Home, state: StreamState) -> StreamState:
    """The state, with the usage that the program wrote to a file where it reports it only there.
    The file is an agent's: it may be anything."""
    if not profile.usage:
        return state
    with suppress(OSError):
        path = os.path.join(home.home, USAGE_FILE)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            text = (file.read(LARGEST_USAGE) or b"").decode("utf-8", "replace")
        return with_usage(profile.stream, state, text)
    return state


def _schema_file(home: Home, schema: str) -> str:
    path = os.path.join(home.home, SCHEMA_FILE)
    if schema:
        write_own(path, schema)
    return path


def _usage_file(home: Home) -> str:
    """Where it may write; what an earlier attempt wrote is not this one's."""
    path = os.path.join(home.home, USAGE_FILE)
    with suppress(OSError):
        os.unlink(path)
    return path
