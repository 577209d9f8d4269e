"""Starts and stops Ray on this host, and asks it who it lets in. Runs Ray's own commands.

Every Ray that is started here asks for a token: it listens on all interfaces, whatever address it
is given.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib import metadata

from hypervisor.cluster.security import is_loopback
from hypervisor.core.errors import ClusterError
from hypervisor.core.extras import install_command
from hypervisor.core.private_files import replace_private_file

PORT = 6379
OBJECT_STORE = 80_000_000  # bytes, about the least that Ray accepts: we store nothing there
TOKEN_FILE = os.path.join(".ray", "auth_token")
LIMIT = 120.0  # seconds for a command of Ray
REACH = 5.0  # seconds to connect to a head
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    # It would kill our small actor, not the agent that fills the memory. The governor does this.
    "RAY_memory_monitor_refresh_ms": "0",
}
TEMPORARY = os.path.join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray")
NO_CLUSTER = (
    "this host is not part of a Ray cluster. Start one with `hv cluster up`, or join one with "
    "`hv cluster join ADDRESS`"
)
# A GCS client without a token: 0 if it is let in, 3 if it is refused.
ASK_WITHOUT_TOKEN = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).internal_kv_exists(b"hypervisor", namespace=None)
except AuthenticationError:
    sys.exit(3)
"""


def ray_version() -> str:
    """That of the installed Ray, without loading it."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return ""


def require_ray() -> str:
    version = ray_version()
    if not version:
        raise ClusterError(f"Ray is not installed: {install_command('cluster')}")
    return version


def start_head(node_ip: str, port: int, folder: str = "") -> str:
    """Start a head on this host; returns its address."""
    head = ("--head", f"--port={port}", "--include-dashboard=false")
    _ray("start", *head, *_common(node_ip, folder))
    return f"{node_ip}:{port}"


def start_node(address: str, node_ip: str = "", folder: str = "") -> None:
    """Let this host join the cluster at an address."""
    _ray("start", f"--address={address}", *_common(node_ip, folder))


def asks_for_token(address: str) -> bool:
    """Whether the cluster refuses a client without a token. ClusterError: nobody answers there."""
    check_reachable(address)
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK_WITHOUT_TOKEN, address],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode not in (0, 3):
        raise ClusterError(f"Ray at {address} did not answer: {_last_line(done.stderr)}")
    return done.returncode == 3


def check_reachable(address: str) -> None:
    """Ray itself would try for 40 seconds."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot reach the Ray cluster at {address}: {error}") from None


def save_token(token: str) -> str:
    """Keep the token where Ray looks for it, for this user only; returns the path."""
    path = os.path.join(os.path.expanduser("~"), TOKEN_FILE)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    replace_private_file(path, token.strip().encode())
    return path


def make_token() -> str:
    """The path of this user's token; it is made if there is none. Ray makes it readable by all."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser(f"~/{TOKEN_FILE}")
    if "RAY_AUTH_TOKEN" not in os.environ and not os.path.exists(path):
        import secrets

        return save_token(secrets.token_hex(32))
    if os.path.exists(path) and os.stat(path).st_uid == os.getuid():
        os.chmod(path, 0o600)
    return path


def current_address() -> str:
    """The address of the cluster that this host is part of. ClusterError: of none."""
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        try:
            with open(os.path.join(TEMPORARY, "ray_current_cluster"), encoding="ascii") as file:
                address = file.read().strip()
            check_reachable(address)  # the file may be old
        except (OSError, ClusterError):
            raise ClusterError(NO_CLUSTER) from None
    return address


def settings(address: str = "") -> dict[str, str]:
    """For Ray's processes. A cluster on the loopback interface may do without a token."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if address and is_loopback(address) and mode:
        return {**SETTINGS, "RAY_AUTH_MODE": mode}
    return SETTINGS


def _common(node_ip: str, folder: str) -> list[str]:
    return [
        *([f"--node-ip-address={node_ip}"] if node_ip else []),
        *([f"--temp-dir={folder}"] if folder else []),
        f"--object-store-memory={OBJECT_STORE}",
        "--disable-usage-stats",
    ]


def _ray(*words: str) -> str:
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    done = subprocess.run(
        command,
        env={**os.environ, **settings()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode:
        raise ClusterError(f"ray {words[0]} failed: {_last_line(done.stderr or done.stdout)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
