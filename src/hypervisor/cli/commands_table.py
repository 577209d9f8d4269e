"""All commands: which file presents them and which verb each is about.

Only the module of the command that is called gets imported.
"""

from typing import NamedTuple

from hypervisor.verbs import summary


class Command(NamedTuple):
    name: str
    verb: str | None
    # "open" an existing one, "make" one if missing, "look" if there is one (None if not),
    # "bare" the same (but this host can be asked), or "none"
    store: str = "open"
    about: str = ""

    @property
    def summary(self) -> str:
        return self.about or summary(self.verb or "")


COMMANDS = {
    command.name: command
    for command in (
        Command("run", "run", "make"),
        Command("preflight", "preflight", "look"),
        Command("skills", "skills", "bare"),
        Command("agents", "agents", "bare"),
        Command("status", "status"),
        Command("top", "attempts"),
        Command("logs", "output"),
        Command("summary", "summary"),
        Command("report", "report"),
        Command("review", "review"),
        Command("pause", "pause"),
        Command("resume", "resume"),
        Command("scale", "scale"),
        Command("kill", "kill"),
        Command(
            "supervise",
            "supervise",
            "make",
            "Run the supervisor of this host, in the foreground or in the background.",
        ),
        Command("add", "add", "make"),
        Command("ls", "list_tasks"),
        Command("show", "show"),
        Command("claim", "claim"),
        Command("heartbeat", "heartbeat"),
        Command("done", "complete"),
        Command("block", "block"),
        Command("fail", "fail"),
        Command("release", "release"),
        Command("retry", "retry"),
        Command("cancel", "cancel"),
        Command("update", "update"),
        Command("receipt", "receipt"),
        Command("stats", "stats"),
        Command("events", "events"),
        Command("learn", "learnings"),
        Command("plan", "plan"),
        Command("apply", "apply"),
        Command("undo", "undo"),
        Command("remember", "remember", "make"),
        Command("recall", "recall"),
        Command("hive", "hive_report"),
        Command("branch", "branch", "make"),
        Command("gc", "gc"),
        Command("doctor", "doctor"),
        Command("mcp", None, "none", "Serve an agent over stdin and stdout, as an MCP server."),
        Command("notify", "add_rule", "make"),
        Command("serve", None, "make", "Serve agents on this machine over HTTP, as an MCP server."),
        Command("install", None, "none", "Let an agent's client use Hypervisor over MCP."),
        Command("uninstall", None, "none", "Take Hypervisor out of a client's configuration."),
        Command("completion", None, "none", "Print the tab completion for your shell."),
    )
}
# Verbs that a command offers beside the one it is named for.
ALSO = {
    "run": ("run_pattern",),
    "summary": ("pattern",),
    "skills": ("skill", "new_skill"),
    "agents": ("check_agent", "brakes", "lift_brake"),
    "done": ("complete_and_claim",),
    "release": ("take_back",),
    "update": ("accept",),
    "receipt": ("receipts", "verify", "write_receipts"),
    "stats": ("batches",),
    "kill": ("stop_batch",),
    "review": ("chunks", "awaiting", "decide", "retry_chunk", "amend"),
    "mcp": ("spawn_parallel_tasks", "propose", "wait_for_events"),
    "learn": ("learn_parallelization",),
    "doctor": ("sweep",),
    "remember": ("forget",),
    "recall": ("joined",),
    "branch": ("branches",),
    "notify": (
        "rules",
        "remove_rule",
        "try_rule",
        "send_notices",
        "dead_letters",
        "retry_notices",
        "drop_notices",
    ),
}
