"""Which file system a path is on; SQLite must not live on a network one."""

from __future__ import annotations

import os

NETWORK = {
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
}


def network_file_system(path: str, table: str | None = None) -> str | None:
    """The type of the network file system that `path` is on, None if it is local."""
    if table is None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            table = file.read()
    path = os.path.realpath(path)
    best, kind = "", ""
    for line in table.split("\n"):
        left, _, right = line.partition(" - ")
        if not right:
            continue
        point = _unescape(left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, right.split(" ")[0]
    return kind if kind in NETWORK else None


def _unescape(text: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
