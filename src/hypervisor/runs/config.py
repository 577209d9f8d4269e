"""Reads and checks config.toml, except for the tables about agents (agents/config.py)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.host import DEFAULT_HOST_LEASE
from hypervisor.resources.limits import Limits
from hypervisor.resources.zones import DEFAULTS, Thresholds
from hypervisor.runs.config_readers import (
    DURATION,
    SHARE,
    SIZE,
    TEXT,
    Key,
    a_size,
    a_span,
    a_text,
    commands,
    days_or_off,
    exchange,
    folders,
    grace,
    host_lease,
    hosts,
    names,
    number,
    object_store,
    one_of,
    or_off,
    positive_size,
    positive_span,
    refuse,
    refuse_unknown,
    texts,
    url,
    values,
    workers,
    yes_or_no,
)
from hypervisor.runs.sandbox.level import LEVELS, SandboxSettings
from hypervisor.runs.spec import ON_CUTS, STRATEGIES, OnCut, Strategy
from hypervisor.runs.telemetry_settings import TelemetrySettings


class WorkspaceSettings(NamedTuple):
    """What a clone of a repository needs to be usable, and how long it is kept. `timeout` is in
    milliseconds."""

    include: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    timeout: int = 600_000
    snapshots: int = 50
    keep_days: float = 7
    exchange: str = ""


class RetentionSettings(NamedTuple):
    """How many events are kept, and for how long; how long finished batches, None: forever."""

    event_days: float = 90
    events: int = 5_000_000
    finished_days: float | None = None


class Settings(NamedTuple):
    """`workers` None is one for each core; `grace` is in seconds; sizes are in bytes."""

    relaxed: bool = False
    workers: int | None = None
    nice: int = 10
    capabilities: tuple[str, ...] = ()
    grace: float = 3.0
    on_cut: OnCut = "freeze"
    strategy: Strategy = "auto"
    thresholds: Thresholds = DEFAULTS
    memory_limit: int | None = None
    limits: Limits = Limits(output=1 << 30)
    limits_by_type: Mapping[str, Limits] = MappingProxyType({})
    dry_run: bool = False
    keep_days: float = 30
    keep_size: int = 10 << 30
    keep_each: int = 8 << 20
    output_store: str = ""
    workspace: WorkspaceSettings = WorkspaceSettings()
    merge_verify: tuple[str, ...] = ()
    merge_env: tuple[str, ...] = ()
    agents_may_approve: bool = False
    telemetry: TelemetrySettings = TelemetrySettings()
    host_lease: int = DEFAULT_HOST_LEASE
    labels: tuple[str, ...] = ()
    sandbox: SandboxSettings = SandboxSettings()
    review_findings: bool = False
    retention: RetentionSettings = RetentionSettings()


def settings_from(config: Mapping[str, Any]) -> Settings:
    """The settings in config.toml. InvalidInput names the invalid key."""
    refuse_unknown("", config, (*TABLES, *AGENT_TABLES))
    table = {name: values(name, config.get(name, {}), keys) for name, keys in TABLES.items()}
    governor, limits, outputs, merge, hosts = (
        table[name] for name in ("governor", "limits", "outputs", "merge", "hosts")
    )
    defaults = Settings()
    return Settings(
        relaxed=table["store"].get("durability") == "relaxed",
        strategy=governor.pop("strategy", defaults.strategy),
        memory_limit=governor.pop("memory_limit", None),
        thresholds=_thresholds(governor),
        limits_by_type=limits.pop("types", {}),
        dry_run=limits.pop("dry_run", False),
        limits=defaults.limits._replace(**limits),
        merge_verify=merge.get("verify", ()),
        merge_env=merge.get("env", ()),
        agents_may_approve=merge.get("agents_may_approve", False),
        **table["run"],
        output_store=outputs.pop("store", ""),
        **outputs,
        workspace=WorkspaceSettings(**table["workspace"]),
        telemetry=TelemetrySettings(**table["telemetry"]),
        host_lease=hosts.get("lease", defaults.host_lease),
        labels=hosts.get("labels", ()),
        sandbox=SandboxSettings(**table["sandbox"]),
        review_findings=table["hive"].get("review", False),
        retention=RetentionSettings(**table["retention"]),
    )


def limits_from(data: object, table: str = "limits") -> Limits:
    """Limits as people write them: durations and sizes, "off" for none."""
    return Limits(**values(table, data, LIMITS))


def _thresholds(governor: dict[str, Any]) -> Thresholds:
    if "hold" in governor:
        governor["hold_ms"] = governor.pop("hold")
    thresholds = Thresholds(**governor)
    rising = (
        ("cpu_warning", "cpu_danger"),
        ("ram_warning", "ram_danger"),
        ("ram_danger", "ram_emergency"),
        ("ceiling", "ram_emergency"),
    )
    for low, high in rising:
        if getattr(thresholds, low) > getattr(thresholds, high):
            raise InvalidInput(f"governor.{low} must not be above governor.{high}.")
    least = min(thresholds.cpu_warning, thresholds.ram_warning, thresholds.stall / 100)
    if thresholds.margin >= least:  # such a zone could never be left again
        raise InvalidInput(f"governor.margin must be below every threshold, so below {least:g}.")
    return thresholds


def _types(key: str, value: Any) -> Mapping[str, Limits]:
    if not isinstance(value, Mapping):
        refuse(key, f"tables, as in [{key}.NAME]")
    return {name: limits_from(limits, f"{key}.{name}") for name, limits in value.items()}


_SHARE = number(0, 1)
LIMITS: dict[str, Key] = {
    "time": Key(or_off(a_span), DURATION, "stop an attempt after this time", example='"2h"'),
    "memory": Key(
        or_off(a_size), SIZE, "stop an attempt that uses more memory than this", example='"2G"'
    ),
    "silence": Key(
        or_off(a_span),
        DURATION,
        "stop an attempt that shows no activity for this long (agents: 15m by default)",
        example='"15m"',
    ),
    "output": Key(or_off(a_size), SIZE, "stop an attempt that prints more than this", '"1G"'),
}
WORKSPACE: dict[str, Key] = {
    "include": Key(
        texts, "list of patterns", "files to copy into clones although git ignores them", "[]"
    ),
    "caches": Key(folders, "list of folders", "ignored folders to copy into clones", "[]"),
    "setup": Key(commands, "shell commands", "run in a clone before each attempt", "[]"),
    "teardown": Key(commands, "shell commands", "run in a clone after each attempt", "[]"),
    "timeout": Key(positive_span, DURATION, "time limit of each of these commands", '"10m"'),
    "snapshots": Key(number(2, 10_000, whole=True), "number", "snapshots kept per attempt", "50"),
    "keep_days": Key(
        number(0, 36_500),
        "days",
        "how long removed clones, and logs and checkouts of verifications, are kept",
        "7",
    ),
    "exchange": Key(
        exchange,
        "URL or folder",
        "where hosts of a shared store hand each other commits: a bare repository at a URL or in "
        "a folder, or object storage (s3, gs, az, file)",
        "",
        '"ssh://git@example.org/exchange.git"',
    ),
}
AGENT_TABLES = ("agents", "routing", "prices", "budget", "gateway")
TABLES: dict[str, dict[str, Key]] = {
    "store": {
        "durability": Key(
            one_of("full", "relaxed"),
            "full, relaxed",
            "full: a change is on disk before the command returns; relaxed: a moment later",
            '"full"',
        )
    },
    "run": {
        "workers": Key(
            workers,
            "number or auto",
            "number of workers; auto: one per core, more while they wait",
            '"auto"',
        ),
        "nice": Key(number(0, 19, whole=True), "0 to 19", "niceness of commands", "10"),
        "grace": Key(grace, DURATION, "time between SIGTERM and SIGKILL, at most 60s", '"3s"'),
        "capabilities": Key(
            names, "list of names", "what this host can do, for tasks that require it", "[]"
        ),
        "on_cut": Key(
            one_of(*ON_CUTS),
            ", ".join(ON_CUTS),
            "what attempts do when this host cannot reach PostgreSQL, unless --on-cut is given",
            '"freeze"',
        ),
    },
    "governor": {
        "strategy": Key(
            one_of(*STRATEGIES),
            ", ".join(STRATEGIES),
            "how to choose the number of workers, unless --strategy is given",
            '"auto"',
        ),
        "memory_limit": Key(
            positive_size, SIZE, "memory for all attempts together", example='"6G"'
        ),
        "cpu_warning": Key(_SHARE, SHARE, "CPU load at which half the workers run", "0.60"),
        "cpu_danger": Key(_SHARE, SHARE, "CPU load above which nothing new starts", "0.80"),
        "ram_warning": Key(_SHARE, SHARE, "memory use at which half the workers run", "0.70"),
        "ram_danger": Key(_SHARE, SHARE, "memory use above which nothing new starts", "0.85"),
        "ram_emergency": Key(_SHARE, SHARE, "memory use above which attempts are stopped", "0.95"),
        "stall": Key(
            number(0, 100),
            "0 to 100",
            "percent of time stalled on memory above which attempts are stopped",
            "20",
        ),
        "ceiling": Key(_SHARE, SHARE, "share of memory that attempts may be planned for", "0.90"),
        "margin": Key(_SHARE, SHARE, "how far below its threshold a zone is left", "0.05"),
        "hold": Key(a_span, DURATION, "how long the load must stay there to leave a zone", '"3s"'),
    },
    "limits": {
        **LIMITS,
        "dry_run": Key(
            yes_or_no, "true, false", "only report what would be stopped, stop nothing", "false"
        ),
        "types": Key(_types, "tables", "limits of one type of task: [limits.types.NAME]"),
    },
    "outputs": {
        "keep_days": Key(number(0, 36_500), "days", "delete outputs older than this", "30"),
        "keep_size": Key(a_size, SIZE, "delete the oldest outputs above this total", '"10G"'),
        "keep_each": Key(a_size, SIZE, "shorten an output above this to its start and end", '"8M"'),
        "store": Key(
            object_store,
            "URL",
            "where hosts that share a PostgreSQL store keep outputs for each other",
            example='"s3://bucket/hypervisor"',
        ),
    },
    "workspace": WORKSPACE,
    "merge": {
        "verify": Key(
            commands,
            "list of commands",
            "run before work is merged, unless --verify is given",
            "[]",
            '["make test"]',
        ),
        "env": Key(
            names,
            "list of names",
            "variables of yours that verification of an agent's work gets, too",
            "[]",
            '["DATABASE_URL"]',
        ),
        "agents_may_approve": Key(
            yes_or_no,
            "true, false",
            "agents that supervise over MCP may approve and reject tasks in review",
            "false",
        ),
    },
    "telemetry": {
        "traces": Key(
            yes_or_no,
            "true, false",
            "send traces (default: if an endpoint is set, here or in OTEL_EXPORTER_OTLP_ENDPOINT)",
            example="true",
        ),
        "endpoint": Key(
            url,
            "URL",
            "OTLP/HTTP receiver of traces; the variables OTEL_EXPORTER_OTLP_* set everything else",
            example='"http://127.0.0.1:4318/v1/traces"',
        ),
        "content": Key(
            yes_or_no, "true, false", "send names, titles and reasons of failures, too", "false"
        ),
    },
    "hosts": {
        "lease": Key(
            host_lease,
            DURATION,
            "a host that cannot reach PostgreSQL for this long stops its work; others take it over",
            '"60s"',
        ),
        "labels": Key(
            names, "list of names", "labels of this host, for hv run --on", "[]", '["gpu", "lab"]'
        ),
    },
    "sandbox": {
        "level": Key(
            one_of(*LEVELS),
            ", ".join(LEVELS),
            "sandbox of commands and agents, unless --sandbox is given",
            '"none"',
        ),
        "allow": Key(
            hosts,
            "list of hosts",
            "hosts that the network level allows, in addition to an agent's provider",
            "[]",
            '["pypi.org", "*.npmjs.org"]',
        ),
        "read": Key(
            texts,
            "list of paths",
            "hidden paths that attempts may read",
            "[]",
            '["~/.gitconfig"]',
        ),
        "image": Key(a_text, TEXT, "image of the container level", example='"my/agents:1"'),
        "engine": Key(
            a_text, "program", "podman, docker or another program with the same options", '""'
        ),
    },
    "hive": {
        "review": Key(
            yes_or_no,
            "true, false",
            "agents get findings of other branches only after a person has approved them",
            "false",
        ),
    },
    "retention": {
        "event_days": Key(number(1, 36_500), "days", "delete events older than this", "90"),
        "events": Key(
            number(10_000, 10**12, whole=True),
            "number",
            "delete the oldest events above this number",
            "5000000",
        ),
        "finished_days": Key(
            days_or_off,
            "days",
            "delete finished batches and tasks this long after they ended",
            '"off"',
        ),
    },
}
