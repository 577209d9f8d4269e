"""hv backup"""

import argparse
import os

from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text
from hypervisor.runs.backup import BackedUp, backup, restore_backup

EXAMPLE = "hv backup ~/store-backup.tgz"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the backup: a tar file; .tgz is compressed")
    parser.add_argument(
        "--restore", action="store_true", help="read it, into a folder without a store"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    if not args.restore:
        done = backup(hv, args.file)
        return respond(args, done, f"{_size(done)} backed up to {one_line(done.path)}")
    if "://" in hv.store.where:
        raise InvalidInput("a PostgreSQL store is restored by PostgreSQL: use `pg_restore`.")
    done = restore_backup(args.file, os.path.dirname(hv.store.where))
    return respond(args, done, f"{_size(done)} restored to {one_line(done.path)}")


def _size(done: BackedUp) -> str:
    return f"{pluralize(done.files, 'file')} ({size_text(done.bytes)})"
