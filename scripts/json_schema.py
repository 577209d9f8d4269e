"""Writes docs/json-schema.json: what `--json` prints, from the types of the values."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from marked import ROOT, renewed

from hypervisor.agents.agents import AgentView
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.transcript import TranscriptLine
from hypervisor.batches.checkpoint import Checkpoint
from hypervisor.batches.chunk import Chunk
from hypervisor.batches.delete import Deleted
from hypervisor.batches.plans.apply import Applied
from hypervisor.batches.plans.plan import Plan
from hypervisor.batches.plans.undo import Undone
from hypervisor.batches.preflight_findings import Preflight
from hypervisor.batches.review import Decided, ToDecide
from hypervisor.batches.review_items import ReviewItem
from hypervisor.batches.summary import Summary
from hypervisor.cli.json_form import BATCH_IS_ID, BATCH_IS_NAME, VERSION, converted
from hypervisor.cluster.down import ClusterDown
from hypervisor.cluster.join import Joined
from hypervisor.cluster.status import ClusterStatus
from hypervisor.cluster.up import ClusterUp
from hypervisor.core.text import CURRENCY
from hypervisor.git.land import Landing
from hypervisor.git.queue_status import LandedTask, LaneStatus
from hypervisor.git.resolve import Resolution
from hypervisor.git.saved_work import Restored, SavedSnapshot, TaskDiff
from hypervisor.git.tidy import Freed
from hypervisor.hive.branch import Branch
from hypervisor.hive.branch_report import HiveReport
from hypervisor.hive.finding import Known, Remembered
from hypervisor.integrations.shell_completion import Installed
from hypervisor.learning.learn import Learned
from hypervisor.monitoring.status import CurrentAttempt, Status
from hypervisor.notifications.notice import Notice, Rule
from hypervisor.notifications.notify import Delivered, RuleStatus
from hypervisor.queue.claim import CompleteAndClaim, HeartbeatResult
from hypervisor.queue.doctor import Check
from hypervisor.queue.event import Event
from hypervisor.queue.lease import Lease, SettledResult
from hypervisor.queue.queries import TaskOverview
from hypervisor.queue.receipt import ChainReport, Receipt
from hypervisor.queue.steer import Moved
from hypervisor.queue.task import Added, Batch, Stats, Task
from hypervisor.runs.backup import BackedUp
from hypervisor.runs.results import TaskResult
from hypervisor.selftest.run import Report
from hypervisor.skills.skills import SkillDetails, SkillView

# Types of fields that their modules import for type checkers only.
TYPES = {"Chunk": Chunk, "Cooldown": Cooldown, "Learned": Learned}

PAGE = "docs/json-schema.json"
Schema = dict[str, Any]
SIMPLE: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
STRING: Schema = {"type": "string"}
STRINGS: Schema = {"type": "array", "items": STRING}
INTEGER: Schema = {"type": "integer"}
OPTIONAL_INTEGER: Schema = {"type": ["integer", "null"]}
BOOLEAN: Schema = {"type": "boolean"}
TIMES = {"at", "since", "until", "begun", "ended", "lease_until"}


class Definitions:
    """The named tuples that were met, each described once."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def schema(self, hint: Any) -> Schema:
        """What a value of this type looks like."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in SIMPLE:
            return {"type": SIMPLE[hint]}
        if hasattr(hint, "_fields"):
            return self._named_tuple(hint)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return {"enum": [str(value) for value in hint]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(argument) for argument in arguments]}
        if origin is tuple and arguments[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.schema(each) for each in arguments]}
        if origin in (tuple, list, Sequence):
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        return {}

    def array(self, kind: Any) -> Schema:
        return {"type": "array", "items": self.schema(kind)}

    def with_members(self, kind: Any, **members: Schema) -> Schema:
        """An object that has more than the named tuple."""
        return {"allOf": [self.schema(kind), _object(members)]}

    def _named_tuple(self, kind: Any) -> Schema:
        name = self._name(kind)
        if name not in self.found:
            self.found[name] = {}  # it may contain itself
            hints = get_type_hints(kind, localns=TYPES)
            members = {field: self._member(field, hints[field]) for field in kind._fields}
            for old, new, _ in converted(kind):
                del members[old]
                optional = type(None) in get_args(hints[old])
                members[new] = {"type": ["number", "null"] if optional else "number"}
                members[new] |= _unit(new)
            if kind.__name__ in BATCH_IS_ID | BATCH_IS_NAME:
                members["batch_id"] = STRING
            if kind.__name__ in BATCH_IS_NAME:
                del members["id"]
            self.found[name] = _object(members)
        return {"$ref": f"#/$defs/{name}"}

    def _name(self, kind: Any) -> str:
        """Its name; with the room, if another room has one of the same name."""
        name: str = kind.__name__
        if self._kinds.setdefault(name, kind) is not kind:
            name = f"{kind.__module__.split('.')[1]} {name}"
        return name

    def _member(self, field: str, hint: Any) -> Schema:
        schema = self.schema(hint)
        return schema if "$ref" in schema else {**schema, **_unit(field)}


def _object(members: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(members), "required": list(members)}


def _unit(field: str) -> Schema:
    if field.endswith("_at") or field in TIMES:
        return {"description": "milliseconds since 1970"}
    if field.endswith("seconds"):
        return {"description": "seconds"}
    if field.endswith("bytes") or field == "memory":
        return {"description": "bytes"}
    return {"description": CURRENCY} if field == "cost" else {}


def _running(definitions: Definitions) -> dict[str, Schema]:
    """Runs, and looking at them."""
    whole = {"left_out": INTEGER, "unwritten": INTEGER}
    return {
        "agents": definitions.array(AgentView),
        "apply": definitions.schema(Applied),
        "batches": {
            "type": "array",
            "items": definitions.with_members(Batch, stats=definitions.schema(Stats)),
        },
        "batches archive": _object({"batches": STRINGS}),
        "batches unarchive": _object({"batches": STRINGS}),
        "batches delete": definitions.array(Deleted),
        "pause": _object({"changed": BOOLEAN}),
        "plan": definitions.schema(Plan),
        "preflight": definitions.schema(Preflight),
        "report": _object({"batch": STRING, "path": STRING, "bytes": INTEGER}),
        "results": _object(
            {"batch": STRING, "batch_id": STRING, "results": definitions.array(TaskResult)}
        ),
        "resume": _object({"changed": BOOLEAN, "supervisor": OPTIONAL_INTEGER}),
        "review": {
            "anyOf": [
                definitions.schema(Checkpoint),
                definitions.array(ToDecide),
                definitions.array(ReviewItem),
            ]
        },
        "review --list": definitions.array(Chunk),
        "review --approve": definitions.schema(Decided),
        "run": definitions.with_members(Summary, **whole),
        "scale": _object({"workers": OPTIONAL_INTEGER, "batch": {"type": ["string", "null"]}}),
        "logs": {"anyOf": _logs(definitions)},
        "skills": definitions.array(SkillView),
        "skills show": definitions.schema(SkillDetails),
        "status": definitions.schema(Status),
        "summary": definitions.schema(Summary),
        "supervise": definitions.schema(Event),
        "supervise --detach": _object({"supervisor": INTEGER}),
        "cluster up": definitions.schema(ClusterUp),
        "cluster join": definitions.schema(Joined),
        "cluster status": definitions.schema(ClusterStatus),
        "cluster down": definitions.schema(ClusterDown),
        "cluster manifest": _object({"engine": STRING, "manifest": STRING}),
        "top": definitions.array(CurrentAttempt),
        "undo": definitions.schema(Undone),
    }


def _logs(definitions: Definitions) -> list[Schema]:
    """An object for each task: its output, the transcript of an agent, or its patch."""
    attempt = {"task": STRING, "attempt": INTEGER}
    return [
        _object({**attempt, "start": INTEGER, "text": STRING}),
        _object({**attempt, "agent": STRING, "transcript": definitions.array(TranscriptLine)}),
        _object({**attempt, "agent": STRING, "patch": STRING}),
    ]


def _queue(definitions: Definitions) -> dict[str, Schema]:
    """Tasks, claims and receipts."""
    return {
        "add": definitions.schema(Added),
        "answer": definitions.schema(Moved),
        "approve": definitions.array(Moved),
        "block": definitions.schema(SettledResult),
        "cancel": definitions.array(Moved),
        "claim": definitions.array(Lease),
        "diff": definitions.schema(TaskDiff),
        "done": definitions.schema(SettledResult),
        "done --next": definitions.schema(CompleteAndClaim),
        "events": definitions.schema(Event),
        "fail": definitions.schema(SettledResult),
        "heartbeat": definitions.schema(HeartbeatResult),
        "kill": definitions.array(Moved),
        "land": definitions.with_members(
            Landing, landed=definitions.array(LandedTask), paused=STRING
        ),
        "ls": definitions.array(Task),
        "queue": definitions.array(LaneStatus),
        "receipt add": definitions.array(Receipt),
        "receipt ls": definitions.array(Receipt),
        "receipt verify": definitions.array(ChainReport),
        "reject": definitions.array(Moved),
        "release": definitions.schema(SettledResult),
        "resolve": definitions.schema(Resolution),
        "restore": definitions.schema(Restored),
        "retry": definitions.array(Moved),
        "show": definitions.with_members(
            TaskOverview,
            command=STRINGS,
            exit_code={},
            question=STRING,
            merged=definitions.schema(LandedTask | None),
            verification=STRINGS,
            unchanged=definitions.schema(bool),
        ),
        "snapshots": definitions.array(SavedSnapshot),
        "stats": definitions.schema(Stats),
        "tell": definitions.schema(Moved),
        "update": definitions.schema(Moved),
    }


def _admin(definitions: Definitions) -> dict[str, Schema]:
    """Memory, notifications and the rest."""
    installed = {"client": STRING, "scope": STRING, "files": STRINGS}
    client = _object({**installed, "changed": BOOLEAN, "notes": STRINGS})
    setting = {"key": STRING, "value": {}, "origin": STRING, "source": STRING}
    return {
        "branch": {"anyOf": [definitions.schema(Branch), definitions.array(Branch)]},
        "config": _object(
            {
                "path": STRING,
                "exists": BOOLEAN,
                "settings": {"type": "array", "items": _object(setting)},
            }
        ),
        "completion": _object({"shell": STRING, "script": STRING}),
        "completion --install": definitions.with_members(Installed, dry_run=BOOLEAN),
        "doctor": definitions.array(Check),
        "gc": definitions.schema(Freed),
        "backup": definitions.schema(BackedUp),
        "hive": definitions.schema(HiveReport),
        "install": client,
        "learn": definitions.array(Learned),
        "notify add": definitions.schema(Rule),
        "notify failed": definitions.array(Notice),
        "notify ls": definitions.array(RuleStatus),
        "notify rm": _object({"removed": STRING}),
        "notify send": definitions.schema(Delivered),
        "recall": definitions.array(Known),
        "remember": definitions.schema(Remembered),
        "selftest": definitions.schema(Report),
        "selftest --replay": _object({"held": BOOLEAN, "message": STRING}),
        "serve": _object({"url": STRING, "token_file": STRING}),
        "dashboard": _object(
            {
                "url": STRING,
                "share": {"type": ["string", "null"]},
                "pid": {"type": ["integer", "null"]},
            }
        ),
        "uninstall": client,
        "version": _object({"name": STRING, "version": STRING, "python": STRING, "json": INTEGER}),
    }


def schema() -> Schema:
    """A definition for each command, and for each kind of value in it."""
    definitions = Definitions()
    commands = {**_running(definitions), **_queue(definitions), **_admin(definitions)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"What hv prints with --json, version {VERSION}",
        "$defs": {
            **{f"hv {name}": command for name, command in commands.items()},
            **dict(sorted(definitions.found.items())),
        },
    }


if __name__ == "__main__":
    path = ROOT / PAGE
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    fresh = json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
    sys.exit(renewed(PAGE, before, fresh, "json_schema.py", sys.argv[1:]))
