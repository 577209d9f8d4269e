"""What an agent needs inside of a sandbox: its login, its provider, its MCP server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hypervisor.resources.process_table import command_line
from hypervisor.runs.sandbox.attempt import Attempt
from hypervisor.runs.sandbox.plan import Reach, Server
from hypervisor.runs.sandbox.words import LAUNCH, RELAY

if TYPE_CHECKING:
    from hypervisor.agents.gateway.access import Access
    from hypervisor.agents.homes import Home
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.agents.setup import AgentSetup, Launch
    from hypervisor.resources.process_table import Process

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_WRAPPERS = 4
PORTS = {"http": 80, "https": 443}


def address_file(home: Home) -> str:
    """Where an agent finds the address of its MCP server."""
    return os.path.join(home.home, "mcp-address")


def confined(setup: AgentSetup, launch: Launch, home: Home, access: Access | None) -> Attempt:
    """The attempt of an agent, as the sandbox has to know it."""
    profile, env = setup.profile, launch.env
    server = launch.server
    return Attempt(
        "",
        launch.argv,
        env,
        launch.cwd,
        home=home.home,
        tmp=home.tmp,
        may_write=setup.spec.permissions != "read-only",
        writable=() if access else tuple(_login_files(profile, setup.user_env)),
        reach=_reach(profile, env, access),
        server=Server(server.words, server.env) if server else None,
        address_file=address_file(home),
        programs=(setup.program,) if setup.program else (),
    )


def _login_files(profile: AgentProfile, user_env: Mapping[str, str]) -> Iterator[str]:
    """The program renews its login in these files."""
    for name in profile.login:
        path = os.path.join(user_env.get("HOME", ""), name)
        if os.path.isabs(path) and ".." not in name.split("/") and os.path.isfile(path):
            yield path


def _reach(profile: AgentProfile, env: Mapping[str, str], access: Access | None) -> Reach:
    """The gateway, if the agent calls its model through it; else the hosts of its provider, and
    those that the user has set for it."""
    if access is not None:
        return _of_urls([access.address])
    passed = (env[name] for name in (*profile.passes, *profile.env) if name in env)
    urls = _of_urls([value for value in passed if value.startswith(("http://", "https://"))])
    return urls._replace(hosts=(*profile.hosts, *urls.hosts))


def _of_urls(urls: list[str]) -> Reach:
    hosts, ports = [], []
    for text in urls:
        url = urlsplit(text)
        port = url.port or PORTS[url.scheme]
        if url.hostname in LOOPBACK:
            ports.append(port)
        elif url.hostname:
            hosts.append(f"{url.hostname}:{port}")
    return Reach(tuple(hosts), tuple(ports))


def wrapped(leader: int, alive: list[Process]) -> set[int]:
    """The agent program with what is around it: the launcher, bubblewrap, and the pipes to our MCP
    server. They use CPU even while the agent waits."""
    relays = {p.pid for p in alive if os.fsencode(RELAY[-1]) in command_line(p.pid)}
    pids, pid = {leader, *relays}, leader
    for _ in range(MAX_WRAPPERS):
        if pid == leader and os.fsencode(LAUNCH[-1]) not in command_line(leader):
            break
        children = [process for process in alive if process.parent == pid]
        if not children:
            break
        first = min(children, key=lambda process: process.start)
        pids.add(first.pid)
        if first.name != "bwrap":
            break
        pid = first.pid
    return pids
