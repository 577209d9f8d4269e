"""The agents that are known from the start.

`verified` ones are run for real by the tests; the others follow their documentation. What a
mode of permissions means is the same for all: `read-only` changes nothing, `edit` changes files
inside the working directory and runs commands only where a sandbox holds them, `full` may do
whatever the user may. No flag is used that claims a sandbox which is not there.
"""

from __future__ import annotations

from types import MappingProxyType

from hypervisor.agents.profile import EDIT, FULL, READ_ONLY, AgentProfile, Price
from hypervisor.agents.stream_state import (
    ACCESS,
    AUTH,
    BILLING,
    BUDGET,
    OVERLOAD,
    QUOTA,
    REQUEST,
    RESUME,
    SERVER,
    TURNS,
)

MIB = 1 << 20
# How an agent gets to its provider from here: proxies and certificates.
WAY_OUT = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
)
COMMON = ("agent", "mcp")  # capabilities of all that can use MCP

CLAUDE_WORDS = (
    "-p",
    "--output-format",
    "stream-json",
    "--verbose",
    "--setting-sources",
    "",
    "{mcp}",
    "{permissions}",
    "{allow}",
    "{turns}",
    "{budget}",
    "{schema}",
    "{pick}",
)
CLAUDE = AgentProfile(
    name="claude",
    program="claude",
    stream="claude",
    argv=CLAUDE_WORDS,
    resume=(*CLAUDE_WORDS, "--resume", "{session}"),
    env=MappingProxyType(
        {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "3",
            "MCP_TIMEOUT": "120000",  # 30 s are too short on a busy host
        }
    ),
    passes=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_CUSTOM_HEADERS",
        *WAY_OUT,
    ),
    keys=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
    ),
    login=(".claude/.credentials.json",),
    mcp=("--mcp-config", "{value}", "--strict-mcp-config"),
    # As root, claude refuses bypassPermissions. dontAsk denies what is not listed, without asking.
    # acceptEdits is no choice for edit: it runs rm, mv, sed and their like in the folder, too.
    permissions=MappingProxyType(
        {
            READ_ONLY: (
                "--permission-mode",
                "dontAsk",
                "--allowedTools=mcp__hypervisor,Read,Glob,Grep",
            ),
            EDIT: (
                "--permission-mode",
                "dontAsk",
                "--allowedTools=mcp__hypervisor,Read,Glob,Grep,Edit(./**)",
            ),
            FULL: (
                "--permission-mode",
                "dontAsk",
                "--allowedTools=mcp__hypervisor,Bash,Edit,Write,NotebookEdit,Read,Glob,Grep,"
                "WebFetch,WebSearch,Task,TodoWrite",
            ),
        }
    ),
    allow=("--allowedTools={value}",),
    turns=("--max-turns", "{value}"),
    budget=("--max-budget-usd", "{value}"),
    schema=("--json-schema", "{value}"),
    pick=("--model", "{value}"),
    provider="anthropic",
    capabilities=COMMON,
    memory=400 * MIB,
    sandbox="none; read-only and edit: its own checks keep its file tools in the folder and refuse "
    "commands that change anything",
    price=Price(4.0, 20.0, 0.2),  # for runs that were stopped before they told what they cost
    verified=True,
    install="npm install -g @anthropic-ai/claude-code",
)

CODEX = AgentProfile(
    name="codex",
    program="codex",
    stream="codex",
    argv=(
        "exec",
        "--json",
        "--skip-git-repo-check",
        "{mcp}",
        "{permissions}",
        "{schema}",
        "{pick}",
        "-",
    ),
    resume=(
        "exec",
        "resume",
        "--json",
        "--skip-git-repo-check",
        "{mcp}",
        "{permissions}",
        "{schema}",
        "{pick}",
        "{session}",
        "-",
    ),
    passes=("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", *WAY_OUT),
    keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
    login=(".codex/auth.json",),
    # `resume` knows no --sandbox; the setting behind it works for both.
    permissions=MappingProxyType(
        {
            READ_ONLY: ("-c", "sandbox_mode=read-only"),
            # Of temporary folders, the private one of the attempt is enough.
            EDIT: (
                "-c",
                "sandbox_mode=workspace-write",
                "-c",
                "sandbox_workspace_write.exclude_slash_tmp=true",
            ),
            FULL: ("-c", "sandbox_mode=danger-full-access"),
        }
    ),
    schema=("--output-schema", "{file}"),
    pick=("--model", "{value}"),
    provider="openai",
    capabilities=COMMON,
    memory=256 * MIB,
    price=Price(1.25, 10.0, 0.125),
    sandbox="read-only and edit: codex's own sandbox, no network and no key for commands",
    verified=True,
    install="npm install -g @openai/codex",
)

GEMINI_WORDS = ("-o", "stream-json", "--skip-trust", "{permissions}", "{allow}", "{pick}")
GEMINI = AgentProfile(
    name="gemini",
    program="gemini",
    stream="gemini",
    argv=GEMINI_WORDS,
    resume=(*GEMINI_WORDS, "--resume", "{session}"),
    # Without NO_RELAUNCH a second process does the work, and ignores SIGTERM.
    env=MappingProxyType({"GEMINI_CLI_NO_RELAUNCH": "true"}),
    passes=(
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "GEMINI_MODEL",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        *WAY_OUT,
    ),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    login=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
    permissions=MappingProxyType(
        {
            READ_ONLY: ("--approval-mode", "default"),
            EDIT: ("--approval-mode", "auto_edit"),
            FULL: ("--approval-mode", "yolo"),
        }
    ),
    allow=("--allowed-tools={value}",),
    pick=("-m", "{value}"),
    provider="google",
    capabilities=COMMON,
    memory=400 * MIB,
    # HTTP errors leave as status & 255: 400, 401, 402, 403, 429, 500, 502, 503.
    codes=MappingProxyType(
        {
            41: AUTH,
            42: RESUME,
            53: TURNS,
            144: REQUEST,
            145: AUTH,
            146: BILLING,
            147: ACCESS,
            173: QUOTA,
            244: SERVER,
            246: SERVER,
            247: OVERLOAD,
        }
    ),
    price=Price(1.25, 10.0, 0.125),
    sandbox="none; its file tools stay in the folder, read-only and edit offer no commands",
    verified=True,
    install="npm install -g @google/gemini-cli",
)

# What it may do is in its configuration, which the equipment writes per mode.
OPENCODE_WORDS = ("run", "--format", "json", "--auto", "{pick}")
OPENCODE = AgentProfile(
    name="opencode",
    program="opencode",
    stream="opencode",
    argv=OPENCODE_WORDS,
    resume=(*OPENCODE_WORDS, "--session", "{session}"),
    env=MappingProxyType(
        {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }
    ),
    passes=(
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY",
        *WAY_OUT,
    ),
    keys=(
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY",
    ),
    login=(".local/share/opencode/auth.json", ".config/opencode/opencode.json"),
    pick=("--model", "{value}"),
    provider="opencode",
    capabilities=COMMON,
    memory=800 * MIB,
    verified=True,
    install="npm install -g opencode-ai",
)

QWEN_WORDS = (
    "--auth-type",
    "openai",
    "-o",
    "stream-json",
    "{mcp}",
    "{permissions}",
    "{allow}",
    "{turns}",
    "{schema}",
    "{pick}",
)
QWEN = AgentProfile(
    name="qwen",
    program="qwen",
    stream="qwen",
    argv=QWEN_WORDS,
    resume=(*QWEN_WORDS, "--resume", "{session}"),
    passes=("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY", *WAY_OUT),
    keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
    login=(".qwen/oauth_creds.json",),
    permissions=MappingProxyType(
        {
            READ_ONLY: ("--approval-mode", "default"),
            EDIT: ("--approval-mode", "auto-edit"),
            FULL: ("--approval-mode", "yolo"),
        }
    ),
    allow=("--allowed-tools={value}",),
    turns=("--max-session-turns", "{value}"),
    schema=("--json-schema", "@{file}"),
    pick=("--model", "{value}"),
    provider="openai-compatible",
    capabilities=COMMON,
    memory=450 * MIB,
    codes=MappingProxyType({53: TURNS, 55: BUDGET}),
    sandbox="none; read-only and edit offer no commands, but edit may write outside the folder",
    verified=True,
    install="npm install -g @qwen-code/qwen-code  (needs Node 22)",
)

COPILOT_WORDS = (
    "--output-format",
    "json",
    "--no-auto-update",
    "{mcp}",
    "{permissions}",
    "{allow}",
    "{usage}",
    "{pick}",
)
COPILOT = AgentProfile(
    name="copilot",
    program="copilot",
    stream="copilot",
    argv=COPILOT_WORDS,
    resume=(*COPILOT_WORDS, "--resume={session}"),
    env=MappingProxyType({"COPILOT_AUTO_UPDATE": "false"}),
    passes=(
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_MODEL",
        "COPILOT_PROVIDER_BASE_URL",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_TYPE",
        "COPILOT_OFFLINE",
        *WAY_OUT,
    ),
    keys=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY"),
    login=(".copilot/config.json",),
    mcp=("--additional-mcp-config", "@{value}"),
    usage=("--usage-output-file", "{value}"),
    permissions=MappingProxyType(
        {
            READ_ONLY: ("--allow-tool=hypervisor",),
            EDIT: ("--allow-tool=hypervisor", "--allow-tool=write"),
            FULL: ("--allow-all-tools", "--allow-all-paths"),
        }
    ),
    allow=("--allow-tool={value}",),
    pick=("--model", "{value}"),
    provider="github",
    capabilities=COMMON,
    memory=450 * MIB,
    sandbox="none; read-only and edit: its own checks refuse what is outside the folder",
    verified=True,
    install="npm install -g @github/copilot",
)

AGY = AgentProfile(
    name="agy",
    program="agy",
    stream="text",
    argv=("--print-timeout", "60m", "{permissions}"),
    passes=WAY_OUT,
    permissions=MappingProxyType({FULL: ("--dangerously-skip-permissions",)}),
    provider="google",
    capabilities=("agent",),
    install="see https://antigravity.google/docs/cli",
)

CURSOR_WORDS = ("-p", "--output-format", "stream-json", "{permissions}", "{pick}")
CURSOR = AgentProfile(
    name="cursor-agent",
    program="cursor-agent",
    stream="claude",  # the same events, without figures
    argv=CURSOR_WORDS,
    resume=(*CURSOR_WORDS, "--resume={session}"),
    passes=("CURSOR_API_KEY", *WAY_OUT),
    keys=("CURSOR_API_KEY",),
    permissions=MappingProxyType({READ_ONLY: (), FULL: ("--force",)}),
    pick=("--model", "{value}"),
    provider="cursor",
    capabilities=("agent",),
    install="see https://cursor.com/docs/cli/installation",
)

BUILTIN: dict[str, AgentProfile] = {
    each.name: each for each in (CLAUDE, CODEX, GEMINI, OPENCODE, QWEN, COPILOT, AGY, CURSOR)
}
