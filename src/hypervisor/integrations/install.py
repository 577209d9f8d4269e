"""Install Hypervisor as an MCP server of a client, and uninstall it: plan, show, carry out.

The files belong to their owner. Their originals are kept, private, in the user's state folder; a
file that is written in an unusual way is left alone.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import suppress
from importlib import resources
from typing import Any

from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.integrations import config_edit
from hypervisor.integrations.clients import (
    CLIENTS,
    PROJECT,
    Client,
    Place,
    Scope,
    Target,
    target_for,
)

MAX_SIZE = 32 << 20
RECORD = {"existed", "backup", "after", "entry"}


class Change(NamedTuple):
    """A file's content before and after; None: no file."""

    path: str
    before: bytes | None
    after: bytes | None


class Planned(NamedTuple):
    """The changes for one client."""

    client: str
    scope: Scope
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    target: Target | None = None


def current_place() -> Place:
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):  # not given, or invalid: the user's own, from the system
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    return Place(home, os.getcwd(), os.environ)


def plan_install(client: str, scope: Scope, place: Place) -> Planned:
    """The changes that let a client use Hypervisor."""
    target = _target(client, scope, place)
    config = _read(target.config)
    changes = (
        Change(target.config, config, _with_entry(target, config)),
        Change(target.skill, _read(target.skill), skill()),
    )
    notes = []
    if scope == PROJECT and os.path.isabs(hv_command(scope)[0]):
        notes.append("`hv` is not on the PATH, so this only works on this machine")
    return Planned(client, scope, _only_changed(changes), tuple(notes), target)


def plan_uninstall(client: str, scope: Scope, place: Place) -> Planned:
    """The changes that undo it: only what was written is removed."""
    target = _target(client, scope, place)
    records = _records(place, target)
    changes, notes = [], []
    for path, undo in ((target.config, _without_entry), (target.skill, _without_skill)):
        now = _read(path)
        if now is None:
            continue
        record = records.get(path)
        if record is not None and record["after"] == _digest(now):
            changes.append(Change(path, now, _before(place, target, path, record)))
            continue
        try:
            changes.append(Change(path, now, undo(target, now, record, place)))
        except InvalidInput as error:
            notes.append(f"{path} was not changed: {error}")
    return Planned(client, scope, _only_changed(tuple(changes)), tuple(notes), target)


def carry_out(planned: Planned, place: Place, removing: bool = False) -> None:
    """Make the changes, each in one step; originals are kept first."""
    assert planned.target is not None
    _stay_inside(planned.target, place)
    if not removing:
        _save_originals(place, planned.target, planned.changes)
    for change in planned.changes:
        if _read(change.path) != change.before:
            raise WrongState(f"{change.path} has changed since. Try again.")
        if change.after is None:
            _remove(change.path, place)
        else:
            write_file(change.path, change.after, shared=planned.scope == PROJECT)
    if removing and not planned.notes:
        _forget(place, planned.target)


def difference(change: Change) -> list[str]:
    """The changed lines, without their neighbors: those may hold secrets."""
    from difflib import unified_diff

    old, new = ((side or b"").decode("utf-8", "replace") for side in (change.before, change.after))
    entry_before, will = (change.path if side is not None else "/dev/null" for side in change[1:])
    lines = unified_diff(old.splitlines(), new.splitlines(), entry_before, will, n=0, lineterm="")
    return [line if len(line) <= 160 else line[:159] + "…" for line in lines]


def skill() -> bytes:
    return (resources.files("hypervisor.integrations") / "hypervisor.md").read_bytes()


def hv_command(scope: Scope) -> tuple[str, ...]:
    """How a client starts `hv`: by name in what a team shares, else by its path, since a client
    may have another PATH than this shell."""
    from shutil import which

    path = which("hv")
    if path is not None:
        return ("hv",) if scope == PROJECT else (os.path.abspath(path),)
    beside = os.path.join(os.path.dirname(sys.executable), "hv")
    if os.access(beside, os.X_OK):
        return (beside,)
    return (sys.executable, "-I", "-c", "from hypervisor.app import main; main()")


def _target(client: str, scope: Scope, place: Place) -> Target:
    known = CLIENTS.get(client)
    if known is None:
        raise NotFound(f"unknown client {client[:40]!r}; use one of {', '.join(CLIENTS)}.")
    target = target_for(known, scope, place, hv_command(scope))
    _stay_inside(target, place)
    commented = target.config + "c"  # opencode reads either
    if known.name == "opencode" and os.path.exists(commented) and not os.path.exists(target.config):
        return target._replace(config=commented)
    return target


def _with_entry(target: Target, config: bytes | None) -> bytes:
    client = target.client
    try:
        text = _text(config)
        put = config_edit.put_json if client.kind == "json" else config_edit.put_toml
        return put(text, client.path, target.entry).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{target.entry['command']!r} is not valid UTF-8, so it cannot be written to a file. "
            f"Nothing was changed."
        ) from None
    except InvalidInput as error:
        raise InvalidInput(
            f"{target.config} was not changed: {error}. Add this yourself: "
            f"{config_edit.entry_line(client.kind, client.path, target.entry)}"
        ) from None


def _without_entry(
    target: Target, config: bytes, record: dict[str, Any] | None, place: Place
) -> bytes | None:
    client, text = target.client, _text(config)
    is_json = client.kind == "json"
    ours = record["entry"] if record is not None else target.entry
    entry = _entry(client, config)
    if entry is None:
        return config
    if entry != ours:
        raise InvalidInput(f"the entry {'.'.join(client.path)} was changed since it was written")
    before = _before(place, target, target.config, record) if record is not None else None
    entry_before = _entry(client, before)
    if entry_before is not None:
        put = config_edit.put_json if is_json else config_edit.put_toml
        return put(text, client.path, entry_before).encode()
    lonely = _entry(client, before, client.path[:-1]) is None
    if is_json:
        left = config_edit.drop_json(text, client.path, lonely)
    else:
        left = config_edit.drop_toml(text, client.path, ours, lonely)
    empty = left.strip() in ("", "{}")
    return None if empty and record is not None and before is None else left.encode()


def _without_skill(target: Target, now: bytes, *_: Any) -> bytes | None:
    if now != skill():
        raise InvalidInput("it was changed since it was written")
    return None


def _entry(client: Client, config: bytes | None, path: tuple[str, ...] = ()) -> Any:
    text = _text(config)
    read = config_edit.read_json if client.kind == "json" else config_edit.read_toml
    return config_edit.at(read(text) if text.strip() else {}, path or client.path)


def _text(data: bytes | None) -> str:
    if data is None:
        return ""
    if data.startswith(b"\xef\xbb\xbf"):
        raise InvalidInput("it begins with a byte order mark")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("it is not valid UTF-8") from None


def _only_changed(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.before != change.after)


# Files


def _stay_inside(target: Target, place: Place) -> None:
    """A project comes from others: no folder that it links to may lead to files outside it."""
    if target.scope != PROJECT:
        return
    root = os.path.realpath(place.project)
    for path in (target.config, target.skill):
        folder = os.path.realpath(os.path.dirname(path))
        if os.path.commonpath((root, folder)) != root:
            raise InvalidInput(
                f"{os.path.dirname(path)} is a link to {folder}, outside the project. Nothing "
                f"was changed; replace the link with a folder."
            )


def _read(path: str) -> bytes | None:
    """The content, None if the file does not exist. Refuses anything but a regular file of ours."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        raise InvalidInput(f"{path} is a link to {os.readlink(path)}. It was not changed.")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{path} is not a regular file. It was not changed.")
    if status.st_uid != os.getuid():
        raise InvalidInput(f"{path} belongs to another user. It was not changed.")
    if not status.st_mode & 0o200:
        raise InvalidInput(f"{path} is write-protected. It was not changed.")
    if status.st_size > MAX_SIZE:
        raise InvalidInput(f"{path} is larger than {MAX_SIZE >> 20} MB. It was not changed.")
    with open(path, "rb") as file:
        return file.read()


def write_file(path: str, data: bytes, shared: bool = False) -> None:
    folder = os.path.dirname(path)
    new = f"{path}.{os.getpid()}.hv-new"
    try:
        os.makedirs(folder, mode=0o755 if shared else 0o700, exist_ok=True)
        mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else None
        with suppress(FileNotFoundError):
            os.unlink(new)  # left by a killed process with the same pid
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if mode is not None or shared:
                os.fchmod(handle, 0o644 if mode is None else mode)
            file.flush()
            os.fsync(handle)
        os.rename(new, path)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written ({error.strerror}). It was not changed."
        ) from None


def _remove(path: str, place: Place) -> None:
    """The file, and the folders around it that are empty now."""
    try:
        os.unlink(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be removed ({error.strerror}).") from None
    folder = os.path.dirname(path)
    while folder not in (place.home, place.project, "/", ""):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


# Original files


def _save_originals(place: Place, target: Target, changes: tuple[Change, ...]) -> None:
    """A file that is still as we wrote it keeps its first version."""
    folder = _folder(place, target)
    records = _records(place, target)
    for change in changes:
        old = records.get(change.path)
        assert change.after is not None
        name = _digest(change.path.encode())
        if old is None or change.before is None or old["after"] != _digest(change.before):
            old = {"existed": change.before is not None, "backup": name}
            if change.before is not None:
                write_file(os.path.join(folder, name), change.before)
        records[change.path] = {**old, "after": _digest(change.after), "entry": target.entry}
    write_file(os.path.join(folder, "record.json"), json.dumps(records, indent=1).encode())


def _records(place: Place, target: Target) -> dict[str, dict[str, Any]]:
    """What the last install recorded, without entries that are no longer useful."""
    folder = _folder(place, target)
    try:
        with open(os.path.join(folder, "record.json"), "rb") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        return {}
    records = stored.items() if isinstance(stored, dict) else ()
    return {path: record for path, record in records if _is_whole(folder, record)}


def _is_whole(folder: str, record: Any) -> bool:
    if not isinstance(record, dict) or not set(record) >= RECORD:
        return False
    return not record["existed"] or os.path.isfile(os.path.join(folder, str(record["backup"])))


def _before(place: Place, target: Target, path: str, record: dict[str, Any]) -> bytes | None:
    if not record["existed"]:
        return None
    with open(os.path.join(_folder(place, target), record["backup"]), "rb") as file:
        return file.read()


def _forget(place: Place, target: Target) -> None:
    folder = _folder(place, target)
    with suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def _folder(place: Place, target: Target) -> str:
    return os.path.join(place.state, f"{target.client.name}-{_digest(target.config.encode())}")


def _digest(data: bytes) -> str:
    from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()
