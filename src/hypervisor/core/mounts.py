"""What is mounted where, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re

from hypervisor.core.records import NamedTuple

NETWORK = frozenset(
    [
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "coda",
        "9p",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "ocfs2",
        "gfs2",
        "davfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.cephfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.davfs2",
    ]
)
ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """`root` is the folder of the file system that is mounted at `point`."""

    device: str
    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def read_mounts(proc: str = "/proc") -> list[Mount]:
    """The mounts, the last one on top; OSError where they cannot be read."""
    with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())


def network_file_system(path: str, mountinfo: str | None = None) -> str | None:
    """The type of the network file system that `path` is on, None if it is local."""
    path = os.path.realpath(path)
    best, kind = "", ""
    for mount in read_mounts() if mountinfo is None else parse_mounts(mountinfo):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and len(mount.point) >= len(best):  # a later mount hides an earlier one
            best, kind = mount.point, mount.kind
    return kind if kind in NETWORK else None


def parse_mounts(mountinfo: str) -> list[Mount]:
    mounts = []
    for line in mountinfo.split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if kind and len(fields) > 4:
            root, point = map(_unescape, fields[3:5])
            options = tuple(after.rpartition(" ")[2].split(","))
            mounts.append(Mount(fields[2], root, point, kind, options))
    return mounts


def _unescape(path: str) -> str:
    """Spaces and backslashes are written as octal numbers."""
    return ESCAPED.sub(lambda code: chr(int(code[1], 8)), path)
