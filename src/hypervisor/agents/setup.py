"""Sets up a session of an agent: its arguments, its environment and its files.

The agent does not see the user's configuration: HOME is a private folder, with links to the login
files in the profile. Secrets reach the program through its environment and files in that folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents import mcp_config
from hypervisor.agents.command_line import LaunchOptions, arguments
from hypervisor.agents.discovery import locate
from hypervisor.agents.final_report import REPORT_SCHEMA, schema_with
from hypervisor.agents.homes import Home, link_login, unlink_login
from hypervisor.agents.mcp_config import McpAccess, ServerEntry, write_own
from hypervisor.agents.profile import ACP, AgentProfile
from hypervisor.agents.secrets import marks_of
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import with_usage
from hypervisor.agents.transcript_writer import secrets_in
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.template import MAX_WORD_LENGTH
from hypervisor.queue.task import Json
from hypervisor.runs.spec import AgentSpec

if TYPE_CHECKING:
    from hypervisor.agents.gateway.access import Access

PROXIES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy"),
)
# The user's variables that an agent needs to work and to reach its provider.
PASSED = (
    *("PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ"),
    *(*PROXIES, "NO_PROXY", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
)
SCHEMA_FILE = "report-schema.json"
SECRET_NAMES = ("token", "key", "secret", "password", "refresh", "access")
MAX_LOGIN_SIZE = 1 << 20
USAGE_FILE = "usage.json"
# Like our own workers: independent of PATH, PYTHONPATH and the current directory.
BRIDGE = (sys.executable, "-I", "-c", "from hypervisor.agents.acp.bridge import main; main()")
MAX_USAGE_SIZE = 1 << 20


class AgentSetup(NamedTuple):
    """The same for all sessions of a worker, except for `mcp` and `cwd`."""

    profile: AgentProfile
    spec: AgentSpec
    cwd: str
    user_env: Mapping[str, str]  # the user's environment
    mcp: McpAccess
    program: str = ""  # "" if it was not found
    schema: str = ""  # of a report, as text
    relay: tuple[str, ...] = ()  # the command that leads out of a sandbox to our server

    @property
    def problem(self) -> str:
        """Why it cannot be started; "" if it can."""
        if self.program:
            return ""
        name, program, install = self.profile.name, self.profile.program, self.profile.install
        hint = f" Install it ({install}) and" if install else " Install it and"
        return f"{name} is not installed: {program} is not on PATH.{hint} run the batch again."


def setup_for(
    profile: AgentProfile, spec: AgentSpec, cwd: str, user_env: Mapping[str, str], mcp: McpAccess
) -> AgentSetup:
    schema = ""
    if profile.schema and spec.mode != "pull":
        report = schema_with(json.loads(spec.schema)) if spec.schema else REPORT_SCHEMA
        schema = json.dumps(report, separators=(",", ":"))
    return AgentSetup(profile, spec, cwd, user_env, mcp, locate(profile, user_env), schema)


class Prompt(NamedTuple):
    """The prompt of an agent, the session it resumes, and the money it may spend. `attach`: without
    a prompt, in a terminal."""

    text: str
    session: str = ""
    budget: int | None = None
    attach: bool = False
    granted: tuple[str, ...] = ()  # what people allowed in answers, for agents that ask


class Launch(NamedTuple):
    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: bytes | None
    cwd: str
    secrets: frozenset[str]  # must not appear in its output
    server: ServerEntry | None = None  # of MCP, if it has to run outside of a sandbox


def prepare_launch(
    setup: AgentSetup, home: Home, prompt: Prompt, access: Access | None = None
) -> Launch:
    """Prepare the home; returns how to start the agent. With `access`, it calls its model through
    the gateway. InvalidInput: the profile cannot do it."""
    keys = secrets_of(setup.profile, setup.user_env)
    if access is not None:
        keys |= {*access.route.secrets, access.token}
        unlink_login(home.home, setup.profile.login)
        setup = _behind_gateway(setup, access)
    profile, spec, user_env = setup.profile, setup.spec, setup.user_env
    if profile.permissions and spec.permissions not in profile.permissions:
        raise InvalidInput(
            f"{profile.name} has no permission mode {spec.permissions}: "
            f"use one of {', '.join(profile.permissions)}."
        )
    link_login(home.home, user_env.get("HOME", ""), profile.login)
    secrets = secrets_of(profile, user_env, setup.mcp)
    hide = {"HV_HIDE": marks_of(secrets, os.urandom(16))} if secrets else {}
    server = mcp_config.direct_entry(setup.mcp.env(user_env) | hide)
    entry = ServerEntry(setup.relay, {}) if setup.relay else server
    written = mcp_config.write(profile, home.home, entry, spec, user_env)
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
        attach=prompt.attach,
    )
    argv = (setup.program or profile.program, *arguments(profile, options))
    if profile.stream == ACP and not prompt.attach:
        mode = profile.modes.get(spec.permissions, "")
        argv = _bridged(argv, options, mode, prompt.granted)
    _refuse_long(profile, argv)
    env = agent_environment(profile, user_env) | written.env
    env |= {"HOME": home.home, "TMPDIR": home.tmp}
    by_stdin = profile.prompt == "stdin" and not prompt.attach
    stdin = prompt.text.encode("utf-8", "surrogateescape") if by_stdin else None
    outside = server if setup.relay else None
    return Launch(argv, env, stdin, setup.cwd, secrets | keys, outside)


def _behind_gateway(setup: AgentSetup, access: Access) -> AgentSetup:
    """The same without keys and login: with a token and the address of the gateway instead."""
    profile, route = setup.profile, access.route
    user_env = route.env({**setup.user_env, **profile.env}, access.address, access.token)
    changed = {*route.given, *route.withheld}
    own_env = {name: value for name, value in profile.env.items() if name not in changed}
    passes = (*profile.passes, *route.given)
    profile = profile._replace(login=(), env=own_env, passes=passes)
    return setup._replace(profile=profile, user_env=user_env)


def _bridged(
    argv: tuple[str, ...], options: LaunchOptions, mode: str, granted: tuple[str, ...]
) -> tuple[str, ...]:
    """An agent that speaks ACP is run by our bridge, which prints what it does."""
    from hypervisor.agents.acp.order import Order, order_words

    order = Order(
        options.mcp, options.permissions, options.session, options.allow, mode, granted, argv
    )
    return (*BRIDGE, *order_words(order))


def agent_environment(profile: AgentProfile, user_env: Mapping[str, str]) -> dict[str, str]:
    """The user's variables that an agent gets, and those that its profile sets, without HOME."""
    names = {*PASSED, *profile.passes, *profile.keys}
    passed = {
        name: value for name, value in user_env.items() if name in names or name.startswith("LC_")
    }
    return {"PATH": os.defpath, **passed, **profile.env}


def secrets_of(
    profile: AgentProfile, user_env: Mapping[str, str], mcp: McpAccess | None = None
) -> frozenset[str]:
    """Everything the agent can see that must not appear in its output, except for claim tokens,
    which are recognized by their form."""
    names = (*profile.keys, "PGPASSWORD")
    secrets = secrets_in([user_env[name] for name in names if user_env.get(name)])
    addresses = [user_env[name] for name in PROXIES if user_env.get(name)]
    if mcp is not None:
        addresses.append(mcp.store)
    secrets |= secrets_in([address for address in addresses if "@" in address])
    return frozenset(secrets | login_secrets(user_env.get("HOME", ""), profile.login))


def login_secrets(user_home: str, files: Iterable[str]) -> set[str]:
    """Values in login files whose names suggest that they are secret."""
    secrets: set[str] = set()
    for name in files if user_home else ():
        path = os.path.join(user_home, name)
        with suppress(OSError, ValueError, RecursionError), open(path, encoding="utf-8") as file:
            secrets |= set(_secrets_of(json.loads(file.read(MAX_LOGIN_SIZE))))
    return secrets


def _secrets_of(value: Json, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, str) and is_secret:
        yield value
    pairs = value.items() if isinstance(value, dict) else ()
    for name, member in pairs:
        yield from _secrets_of(member, any(word in str(name).lower() for word in SECRET_NAMES))
    for member in value if isinstance(value, list) else ():
        yield from _secrets_of(member, is_secret)


def _refuse_long(profile: AgentProfile, argv: tuple[str, ...]) -> None:
    longest = max(len(os.fsencode(word)) for word in argv)
    if longest > MAX_WORD_LENGTH:
        raise InvalidInput(
            f"the prompt is too long for {profile.name}, which takes it as an argument: "
            f"{longest:,} bytes (maximum {MAX_WORD_LENGTH:,})."
        )


def add_file_usage(profile: AgentProfile, home: Home, state: StreamState) -> StreamState:
    """Add the usage that the program wrote to a file. The agent controls that file: it may be
    anything."""
    if not profile.usage:
        return state
    with suppress(OSError):
        path = os.path.join(home.home, USAGE_FILE)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            text = (file.read(MAX_USAGE_SIZE) or b"").decode("utf-8", "replace")
        return with_usage(profile.stream, state, text)
    return state


def _schema_file(home: Home, schema: str) -> str:
    path = os.path.join(home.home, SCHEMA_FILE)
    if schema:
        write_own(path, schema)
    return path


def _usage_file(home: Home) -> str:
    """The path of the usage file; that of an earlier attempt is removed."""
    path = os.path.join(home.home, USAGE_FILE)
    with suppress(OSError):
        os.unlink(path)
    return path
