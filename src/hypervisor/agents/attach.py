"""Attaching to a task: a person continues the session of its agent in their terminal.

The person's process takes the claim over and keeps it alive. The attempt before is stopped by its
worker, at no cost to the task. Afterwards the task is handed back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, get_args

from hypervisor.agents.answer import tell
from hypervisor.agents.attach_setup import forget_key, skip_first_questions
from hypervisor.agents.make_worker import agent_context, agent_setup
from hypervisor.agents.scrubbing import scrub
from hypervisor.agents.session import resumed
from hypervisor.agents.session_recorder import SessionRecorder
from hypervisor.agents.setup import Launch, Prompt, prepare_launch
from hypervisor.core.errors import HypervisorError, StoreError, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue import claim
from hypervisor.queue.agent_session import AgentSession, NewSession
from hypervisor.queue.lease import parse_token
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.stop import Stop
from hypervisor.queue.take_over import take_over
from hypervisor.runs.make_worker import WorkerStart
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.environment import attempt_variables
from hypervisor.runs.processes.journal import Journal
from hypervisor.runs.spec import spec_from
from hypervisor.runs.workspaces import NotSetUp, StoppedEarly, workspaces_for

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Lease, Worker
    from hypervisor.runs.workspaces import Workspaces

LEASE_MS = 60_000
LOOK = 1.0  # seconds
HEARTBEAT = 10.0
PATIENCE = 60.0  # seconds until the attempt before must have ended
GATEWAY_PATIENCE = 15.0
GRACE = 2.0
OWN_ENDS = ("done", "blocked")  # of a claim, by the agent: the person may read on
Handover = Literal["continue", "done", "block"]
HANDOVERS: tuple[Handover, ...] = get_args(Handover)
NOTE = "I have worked in this session myself. Look at what has changed, and continue the task."


class Attached(NamedTuple):
    """What became of the task. `ended`: the claim had ended by itself, as it was."""

    task: str
    state: str
    ended: str = ""


def session_of(hv: Context, task: str) -> AgentSession:
    """The session of a task that a person can continue here. WrongState: there is none."""
    runs = hv.store.read(agent_sessions.sessions, task=task)
    last = next((run for run in runs if run.session), None)
    nothing = "Nothing was changed"
    if runs and runs[0].outcome is None and not runs[0].session:
        raise WrongState(f"{task} has just been started. {nothing}; try again in a moment.")
    if last is None:
        raise WrongState(f"{task} has no agent session. {nothing}.")
    profile = hv.agent_settings.profiles.get(last.agent)
    if profile is None or not profile.attach:
        raise WrongState(
            f"a session of {last.agent} cannot be continued in a terminal: `attach` is not set in "
            f"[agents.{last.agent}] of config.toml. {nothing}."
        )
    if not hv.homes.exists(task):
        raise WrongState(f"the session of {task} is not on this host. {nothing}.")
    return last


class Attachment:
    """Use as a context: the claim is taken when it is entered. `hand_back` ends it; if that does
    not happen, the task goes back to the queue."""

    def __init__(self, hv: Context, task: str) -> None:
        self._hv, self._run = hv, session_of(hv, task)
        self._me = claim.identity(hv, f"{hv.actor[:50]}-attached", os.getpid())
        self._lease: Lease | None = None
        self._workspaces: Workspaces | None = None
        self._session: SessionRecorder | None = None
        self._launch: Launch | None = None
        self._signal = 0

    def __enter__(self) -> Attachment:
        hv, run = self._hv, self._run
        before = _open_runs(hv, run.task)
        self._lease = take_over(hv, run.task, self._me, LEASE_MS, f"{hv.actor} attached to it")
        try:
            self._wait_for(before)
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._close()
            with suppress(HypervisorError):
                claim.release(self._hv, self._lease.token, "detached")

    @property
    def lease(self) -> Lease:
        assert self._lease is not None
        return self._lease

    @property
    def ended(self) -> str:
        """How the claim has ended already, by the agent or by a person; "" if it has not."""
        return self._agent.ended_claim(parse_token(self.lease.token)) or ""

    def _wait_for(self, runs: list[AgentSession]) -> None:
        """Until the attempt before has ended, with all its processes."""
        until, waiting = time.monotonic() + PATIENCE, {run.id for run in runs}
        while waiting & {run.id for run in _open_runs(self._hv, self._run.task)}:
            if time.monotonic() > until:
                raise WrongState(
                    f"the attempt at {self._run.task} did not stop within {PATIENCE:.0f} s; "
                    "the task is back in the queue."
                )
            time.sleep(0.05)

    def _prepare(self) -> None:
        """The agent as its worker would start it: workspace, session, gateway, home."""
        hv, run = self._hv, self._run
        spec = spec_from(hv.store.read(queries.batch, run.batch).spec)
        if hv.launcher.environment(run.batch) is None:  # its run has ended
            hv.launcher.keep_environment(run.batch)
        user_env = hv.launcher.environment(run.batch) or dict(os.environ)
        journal = Journal(hv.launcher.places.runtime, self._me, None)
        start = WorkerStart(hv, self._me, run.batch, spec, user_env, None, journal)
        self._agent = agent_context(start, run.agent)
        self._workspaces = workspaces_for(self._agent.worker)
        try:
            opened = self._workspaces.open(self.lease, True) if self._workspaces else None
        except (NotSetUp, StoppedEarly) as error:
            raise WrongState(f"cannot open the workspace of {run.task}: {error}") from error
        self._open_session()
        self._keep_gateway()
        setup = agent_setup(start, run.agent)
        mcp = setup.mcp._replace(token=self.lease.token, mark=(tree.MARK, self._mark))
        setup = setup._replace(mcp=mcp, cwd=opened.folder if opened else setup.cwd)
        gateway, prompt = self._agent.gateway, Prompt("", run.session, attach=True)
        grant = gateway.grant(self._session.id) if gateway and self._session else None
        self._home = hv.homes.prepare(run.task)
        launch = prepare_launch(setup, self._home, prompt, grant)
        skip_first_questions(setup.profile.stream, self._home.home, launch)
        more = attempt_variables(spec, run.batch, hv.launcher.places.locks)
        more |= {"HV_TASK": run.task, tree.MARK: self._mark, **_terminal()}
        env = {**launch.env, **(opened.env if opened else {}), **more}
        self._launch = launch._replace(env=env)

    @property
    def _mark(self) -> str:
        return f"{self._run.task}.{self.lease.task.attempts}"

    def _open_session(self) -> None:
        hv, run, agent = self._hv, self._run, self._agent
        self._state = resumed(hv.store.read(agent_sessions.sessions, task=run.task), run.session)
        new = NewSession(
            agent.name,
            agent.account,
            run.batch,
            self._me.id,
            task=run.task,
            attempt=self.lease.task.attempts,
            resumes=run.session,
            spend_code=agent.gateway.new_code() if agent.gateway else "",
        )
        self._session = SessionRecorder(hv.store, new, agent.price)
        self._session.update(self._state, time.monotonic())

    def _keep_gateway(self) -> None:
        """Start the gateway unless one is running, and wait until it can be reached."""
        gateway, until = self._agent.gateway, time.monotonic() + GATEWAY_PATIENCE
        if gateway is None:
            return
        self._hv.launcher.start_gateway()
        while not gateway.is_ready():
            if time.monotonic() > until:
                raise WrongState("the gateway did not start; see `hv doctor`.")
            time.sleep(0.05)

    def run(self) -> int:
        """Run the program in this terminal until it ends; returns its exit code."""
        launch = self._launch
        assert launch is not None
        with self._signals():
            program = subprocess.Popen(launch.argv, env=launch.env, cwd=launch.cwd)
            renewed = time.monotonic()
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return program.wait(LOOK)
                now = time.monotonic()
                if now - renewed >= HEARTBEAT:
                    renewed = now
                    self._renew()
                if self._signal:
                    program.terminate()

    def _renew(self) -> None:
        """Keep the claim alive, and the gateway. A person who took the claim away ends it all."""
        with suppress(StoreError):
            lost = claim.heartbeat(self._hv, [self.lease.token], LEASE_MS).lost
            if lost and self.ended not in OWN_ENDS:
                self._signal = signal.SIGTERM
        if self._agent.gateway is not None:
            self._hv.launcher.start_gateway()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C is for the program; a closed terminal ends it."""

        def end(number: int, _: object) -> None:
            self._signal = number

        before = {
            number: signal.signal(number, signal.SIG_IGN)
            for number in (signal.SIGINT, signal.SIGQUIT)
        }
        before |= {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, way in before.items():
                signal.signal(number, way)

    def hand_back(self, how: Handover, note: str = "") -> Attached:
        """Put the task back for its agent, complete it, or leave it blocked."""
        hv, token, task = self._hv, self.lease.token, self._run.task
        ended = self.ended
        self._close()
        if not ended and how == "done":
            claim.complete(hv, token, {"summary": note or f"done by {hv.actor} in its session"})
        elif not ended and how == "block":
            claim.block(hv, token, note or f"{hv.actor} has left its session")
        elif not ended:
            tell(hv, task, note or NOTE)
            claim.release(hv, token, f"{hv.actor} handed it back")
        self._lease = None
        hv.tasks_changed([task])
        return Attached(task, hv.store.read(queries.task, task).state, ended)

    def _close(self) -> None:
        """End what is left of the program, and save what it did. Harmless if repeated."""
        launch, self._launch = self._launch, None
        if launch is not None:
            with suppress(tree.TreeSurvived):
                tree.end_leftovers([self._mark], None, None, GRACE)
            forget_key(self._agent.profile.stream, self._home.home)
            scrub(self._home, launch.secrets, self._agent.profile.login)
        workspaces, self._workspaces = self._workspaces, None
        if workspaces is not None:
            stop = Stop(self._run.task, 0, "release", "handed back", self._hv.actor)
            workspaces.stopped(self.lease, stop)
        session, self._session = self._session, None
        if session is not None:
            session.close("attached", self._state)


def _open_runs(hv: Context, task: str) -> list[AgentSession]:
    """Sessions of the task whose worker is still there."""
    runs = hv.store.read(agent_sessions.sessions, task=task)
    return [run for run in runs if run.outcome is None and not _is_gone(hv, run)]


def _is_gone(hv: Context, run: AgentSession) -> bool:
    worker: Worker | None = hv.store.read(agent_sessions.worker_of, run.id)
    return worker is None or hv.probe.is_gone(worker) is not False


def _terminal() -> dict[str, str]:
    names = ("TERM", "COLORTERM", "COLUMNS", "LINES", "TERM_PROGRAM")
    return {name: os.environ[name] for name in names if name in os.environ}
