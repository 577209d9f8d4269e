"""Which file system a path is on; SQLite must not live on a network one."""

from __future__ import annotations

import os

from hypervisor.core.mounts import parse_mounts, read_mounts

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


def network_file_system(path: str, mountinfo: str | None = None) -> str | None:
    """The type of the network file system that `path` is on, None if it is local."""
    path = os.path.realpath(path)
    best, kind = "", ""
    for mount in read_mounts() if mountinfo is None else parse_mounts(mountinfo):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and len(mount.point) >= len(best):  # a later mount hides an earlier one
            best, kind = mount.point, mount.kind
    return kind if kind in NETWORK else None
