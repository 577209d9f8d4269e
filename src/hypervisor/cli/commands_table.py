"""All commands by group, with the line that `hv --help` shows, and the verb behind each.

The lines are here because only the module of the called command is imported.
"""

from hypervisor.core.records import NamedTuple


class Command(NamedTuple):
    name: str
    about: str  # the line in `hv --help`
    verb: str | None = None
    # "open" an existing one, "make" one if missing, "look" if there is one (None if not),
    # "bare" the same (but this host can be asked), or "none"
    store: str = "open"


GROUPS = {
    "Run": (
        Command("run", "Run a command, function or agent once per item", "submit", "make"),
        Command("preflight", "Check items before you run them", "preflight", "look"),
        Command("pause", "Pause a batch, a type or everything", "pause"),
        Command("resume", "Resume a batch, a type or everything", "resume"),
        Command("kill", "Stop running attempts", "kill"),
        Command("scale", "Set the number of workers", "scale"),
        Command("skills", "List, show and create skills: saved runs", "skills", "bare"),
    ),
    "Watch": (
        Command("dashboard", "Open a live dashboard in the browser", store="make"),
        Command("status", "Show the progress of a batch or of everything", "status"),
        Command("batches", "List, archive and delete batches", "batches"),
        Command("top", "List running attempts with their age and memory", "attempts"),
        Command("logs", "Print the output of a task or a batch", "output"),
        Command("results", "Print the result of every task of a batch", "results"),
        Command("summary", "Summarize a batch: outcomes, time and cost", "summary"),
        Command("report", "Write an HTML report of a batch", "report"),
        Command("stats", "Count tasks by state and type", "stats"),
        Command("events", "Read or follow the event log", "events"),
        Command("notify", "Send notifications about events", "add_rule", "make"),
    ),
    "Queue": (
        Command("add", "Add tasks to the queue", "add", "make"),
        Command("ls", "List tasks", "list_tasks"),
        Command("show", "Show a task with its attempts and receipts", "show"),
        Command("update", "Change a task", "update"),
        Command("retry", "Put failed or blocked tasks back into the queue", "retry"),
        Command("cancel", "Cancel tasks", "cancel"),
        Command("claim", "Claim the next task to work on it", "claim"),
        Command("heartbeat", "Keep claims alive", "heartbeat"),
        Command("done", "Complete a claimed task", "complete"),
        Command("fail", "Report that an attempt failed", "fail"),
        Command("block", "Report that a task cannot continue, and why", "block"),
        Command("release", "Return a claimed task to the queue", "release"),
        Command("receipt", "Add, list and verify receipts: evidence of work", "receipt"),
    ),
    "Review": (
        Command("review", "Review a chunk and decide how to continue", "review"),
        Command("plan", "Show the changes that a batch proposes", "plan"),
        Command("apply", "Carry out the changes of an approved plan", "apply"),
        Command("undo", "Undo applied changes", "undo"),
        Command("approve", "Approve tasks in review: merge their commits", "approve"),
        Command("reject", "Reject tasks in review", "reject"),
        Command("resolve", "Resolve a conflict of a task in review", "resolve_conflict"),
    ),
    "Git": (
        Command("diff", "Show what a task changed in its workspace", "diff"),
        Command("snapshots", "List the snapshots of a task's workspace", "snapshots"),
        Command("restore", "Restore the files of a task", "restore"),
        Command("queue", "Show the merge queue", "merge_queue"),
        Command("land", "Merge the finished work of a batch", "land"),
    ),
    "Agents": (
        Command("answer", "Answer a blocked agent; it continues", "answer"),
        Command("tell", "Send a note to the agent of a task", "tell"),
        Command("attach", "Continue an agent's session in this terminal"),
        Command("agents", "List agents and show whether they are ready", "agents", "bare"),
        Command("mcp", "Run an MCP server on stdin and stdout", store="none"),
        Command("serve", "Run an MCP server over HTTP on this machine", store="make"),
        Command("install", "Add Hypervisor to an agent's MCP configuration", store="none"),
        Command("uninstall", "Remove Hypervisor from an agent's MCP configuration", store="none"),
    ),
    "Memory": (
        Command("remember", "Store a finding for the agents of a branch", "remember", "make"),
        Command("recall", "Search findings", "recall"),
        Command("hive", "Summarize what a branch knows", "hive_report"),
        Command("branch", "List, create and change branches", "branch", "make"),
        Command("learn", "Show the best number of workers by task type", "learnings"),
    ),
    "Admin": (
        Command("doctor", "Check the store for problems", "doctor"),
        Command("selftest", "Try to break a scratch store on this machine", store="none"),
        Command("gc", "Delete old outputs and clones", "gc"),
        Command("backup", "Back up the store and its outputs", "backup", "bare"),
        Command("supervise", "Run the supervisor of this host", "supervise", "make"),
        Command("cluster", "Run supervisors on many hosts", "cluster_status", "make"),
        Command("config", "Show settings and where they come from", store="none"),
        Command("completion", "Print or install shell tab completion", store="none"),
        Command("version", "Print the version", store="none"),
    ),
}
ALIASES = {"ui": "dashboard"}
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
# Verbs that a command offers in addition to its own.
ALSO = {
    "run": ("run", "map", "run_pattern"),
    "batches": ("archive_batch", "unarchive_batch", "delete_batch"),
    "summary": ("pattern",),
    "skills": ("skill", "new_skill"),
    "agents": ("check_agent", "cooldowns", "end_cooldown"),
    "done": ("complete_and_claim",),
    "release": ("take_back",),
    "update": ("accept",),
    "receipt": ("receipts", "verify", "write_receipts"),
    "kill": ("stop_batch",),
    "review": ("chunks", "awaiting", "review_items", "decide", "retry_chunk", "amend"),
    "mcp": ("spawn_parallel_tasks", "propose", "wait_for_events"),
    "learn": ("learn_parallelization",),
    "doctor": ("sweep",),
    "cluster": ("cluster_up", "cluster_down", "cluster_join", "cluster_manifest"),
    "remember": ("forget",),
    "recall": ("joined",),
    "hive": ("unreviewed_findings", "approve_findings"),
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
