"""Ray's autoscaler for tests: no hosts without work, three for three tasks, none after them.

Its nodes are processes on this machine, so they share one supervisor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

import hypervisor
from hypervisor.cluster.ray_commands import OBJECT_STORE, SETTINGS
from tests.cluster.ray_host import RayHost, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
TOKEN = "0123456789abcdef" * 4
NODE = {"CPU": 1, "object_store_memory": OBJECT_STORE}
LISTS = ("initialization", "setup", "head_setup", "worker_setup")
STARTS = ("head_start_ray", "worker_start_ray")


def config(address):
    return {
        "cluster_name": "hypervisor",
        "max_workers": 3,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
            "use_node_id_as_ip": True,
            "worker_liveness_check": False,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": NODE,
                "node_config": {},
                "min_workers": 0,
                "max_workers": 3,
            },
        },
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 100,
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in (*LISTS, *STARTS)},
    }


@pytest.fixture
def host(postgres_url):
    made = RayHost(postgres_url)
    with hypervisor.open(postgres_url) as hv:
        made.configure(hv)
    try:
        start_head(made)
        yield made
    finally:
        made.end()


def start_head(host):
    """The head, with an autoscaler but without CPUs."""
    token = host.home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text(TOKEN)
    address = f"{own_address()}:{host.port}"
    path = host.home / "autoscaling.json"
    path.write_text(json.dumps(config(address)))
    words = ["start", "--head", f"--port={host.port}", "--num-cpus=0", "--include-dashboard=false"]
    words += [f"--autoscaling-config={path}", f"--object-store-memory={OBJECT_STORE}"]
    env = {**host.env, **SETTINGS, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    command = [sys.executable, "-m", "ray.scripts.scripts", *words, "--disable-usage-stats"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    host.env.update(RAY_ADDRESS=address)


def own_address():
    code = "from ray._private.services import get_node_ip_address as get; print(get())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def nodes(host):
    """The raylets, without that of the head."""
    return [line for line in host.ray_processes().values() if "/raylet/raylet" in line][1:]


def submit(host, go):
    """Without a supervisor on this host."""
    work = hypervisor.CommandSpec(("sh", "-c", f"until [ -e {go} ]; do sleep 0.2; done"))
    tasks = [hypervisor.NewTask(f"{n}", key=f"{n}", data={"item": f"{n}"}) for n in range(4)]
    with hypervisor.open(host.env["HYPERVISOR_STORE"]) as hv:
        hv.scale(1)  # on each host: the others wait
        hv.submit(hypervisor.RunSpec(cwd="/", work=work), tasks, name="w")


def test_from_none_to_three_and_back(host):
    host.json("cluster", "up", "--workers-only", "--idle", "4s")
    assert nodes(host) == []
    go = host.home / "go"
    submit(host, go)
    until(lambda: len(nodes(host)) == 3, "three nodes", 60)
    go.touch()
    until(lambda: host.json("summary", "w")["succeeded"], "the end of the batch")
    until(lambda: nodes(host) == [], "the nodes to be let go")
    stays = [line for line in host.processes().values() if line.endswith("supervise --stay")]
    assert stays == [] and host.json("cluster", "status")["hosts"] == []
