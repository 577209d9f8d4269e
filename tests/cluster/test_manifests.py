"""The printed manifests: one supervisor per host, with the store's URL from a secret."""

import re
import subprocess

import pytest
import yaml

from hypervisor.cluster.manifests import ENGINES, cluster_manifest
from hypervisor.core.errors import InvalidInput


@pytest.mark.parametrize("engine", ENGINES)
def test_every_place_is_filled_in_and_a_supervisor_is_started(engine):
    text = cluster_manifest(None, engine, image="example.org/hv:1", hosts=7, memory="8Gi")
    assert not re.search("@[A-Z]+@", text)
    assert "supervise" in text and "HV_LAUNCHER" in text
    assert "8Gi" in text or "8192" in text


def test_kubernetes_gets_a_daemon_set():
    made = yaml.safe_load(cluster_manifest(None, "kubernetes", image="example.org/hv:1"))
    assert (made["apiVersion"], made["kind"]) == ("apps/v1", "DaemonSet")
    template = made["spec"]["template"]
    assert made["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "example.org/hv:1"
    assert container["command"] == ["hv", "supervise"]
    env = {entry["name"]: entry for entry in container["env"]}
    assert "secretKeyRef" in env["HYPERVISOR_STORE"]["valueFrom"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_slurm_gets_a_script_that_a_shell_can_read(tmp_path):
    text = cluster_manifest(None, "slurm", hosts=7)
    assert text.startswith("#!/bin/sh\n#SBATCH") and "#SBATCH --nodes=7\n" in text
    checked = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_nomad_gets_a_system_job_with_balanced_blocks():
    text = cluster_manifest(None, "nomad")
    assert 'type = "system"' in text and "replace    = false" in text
    depth = 0
    for line in text.splitlines():
        code = re.sub(r'"[^"]*"|\{\{.*?\}\}|#.*', "", line)
        depth += code.count("{") - code.count("}")
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": "swarm"}, "unknown engine"),
        ({"engine": "slurm", "hosts": 0}, "at least 1"),
        ({"engine": "nomad", "image": 'x" evil'}, "invalid image"),
        ({"engine": "nomad", "memory": "lots"}, "invalid memory"),
    ],
)
def test_invalid_values_are_refused(options, text):
    with pytest.raises(InvalidInput, match=text):
        cluster_manifest(None, **options)
