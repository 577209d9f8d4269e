"""Manifests for other engines: each starts `hv supervise` once per host.

They name a secret that holds the store's URL, never the URL itself.
"""

from __future__ import annotations

import os
import re
from typing import Literal, get_args

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context

Engine = Literal["kubernetes", "slurm", "nomad"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
FILES = {"kubernetes": "kubernetes.yaml", "slurm": "slurm.sh", "nomad": "nomad.hcl"}
FOLDER = os.path.join(os.path.dirname(__file__), "templates")
IMAGE = re.compile(r"[\w.:/@-]+")
MEMORY = re.compile(r"([1-9][0-9]*)([MG])i")


def cluster_manifest(
    hv: Context | None,
    engine: str,
    *,
    image: str = "hypervisor-queue:latest",
    hosts: int = 1,
    memory: str = "4Gi",
) -> str:
    """Print a manifest that starts a supervisor on each host of Kubernetes, Slurm or Nomad.

    `hosts`: how many, for Slurm; the others start one on each. `memory`: for each supervisor with
    all its attempts."""
    if engine not in FILES:
        raise InvalidInput(f"unknown engine {engine!r}: use {', '.join(ENGINES)}.")
    if hosts < 1:
        raise InvalidInput("the number of hosts must be at least 1.")
    if not IMAGE.fullmatch(image):
        raise InvalidInput(f"invalid image {image!r} (try registry.example.org/hypervisor:1.0)")
    size = MEMORY.fullmatch(memory)
    if not size:
        raise InvalidInput(f"invalid memory {memory!r} (try 4Gi, 512Mi)")
    values = {
        "IMAGE": image,
        "HOSTS": str(hosts),
        "MEMORY": memory,
        "MEGABYTES": str(int(size[1]) * (1024 if size[2] == "G" else 1)),
    }
    with open(os.path.join(FOLDER, FILES[engine]), encoding="utf-8") as file:
        text = file.read()
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], text)
