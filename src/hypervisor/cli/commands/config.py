"""hv config"""

import argparse
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Literal

from hypervisor.cli.arguments import add_word
from hypervisor.cli.config_sections import SECTIONS, template
from hypervisor.cli.output import one_line, print_json, respond, table
from hypervisor.core.config_file import FILE, read_config
from hypervisor.core.errors import EXIT_OK, StoreUnavailable, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.core.store_path import named_store, store_path
from hypervisor.queue.context import Context
from hypervisor.store.new_store import make_store_folder

EXAMPLE = """hv config
  hv config init
  ${EDITOR:-vi} "$(hv config path)\""""
WORDS = {
    "path": "print the path of config.toml",
    "init": "create a config.toml with every key, commented out",
}
BACKUP = ".bak"
HIDDEN = "(hidden)"
Origin = Literal["default", "file", "environment", "option"]


class Setting(NamedTuple):
    """A setting in effect; `source` names the file, variable or option it comes from."""

    key: str
    value: Any
    origin: Origin
    source: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="PATH|URL", help="use this store")
    add_word(parser, WORDS, "show")
    parser.add_argument(
        "--force", action="store_true", help=f"init: replace the file, keep the old one as {BACKUP}"
    )


def run(args: argparse.Namespace) -> int:
    if args.word == "init":
        return _init(args)
    if args.word == "path":
        path = os.path.join(_folder(args), FILE)
        return respond(args, {"path": path}, path)
    return _show(args)


def _folder(args: argparse.Namespace) -> str:
    """Where config.toml belongs. The store is not opened: its settings may be invalid."""
    where = named_store(args.store, os.environ)
    if "://" not in where:
        return os.path.dirname(store_path(where, create=True))
    with closing(args.look()) as hv:
        return str(hv.places.data)


def _init(args: argparse.Namespace) -> int:
    folder = _folder(args)
    path = os.path.join(folder, FILE)
    if os.path.lexists(path):
        if not args.force:
            raise WrongState(f"{path} already exists. To replace it: hv config init --force")
        os.replace(path, path + BACKUP)
    make_store_folder(folder)
    try:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(template())
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}.") from None
    return respond(args, {"path": path}, f"wrote {one_line(path)}")


def _show(args: argparse.Namespace) -> int:
    with closing(args.look()) as hv:
        folder, environment = hv.places.data, _from_environment(args, hv)
        _ = hv.settings  # refuses an invalid file
    path = os.path.join(folder, FILE)
    settings = [*environment, *_from_file(read_config(folder), path)]
    if args.json:
        print_json({"path": path, "exists": os.path.exists(path), "settings": settings})
        return EXIT_OK
    hint = "" if os.path.exists(path) else " (does not exist; to create it: hv config init)"
    print(f"{one_line(path)}{hint}\n")
    table(("SETTING", "ORIGIN", "VALUE"), [_row(setting) for setting in settings], widest=40)
    return EXIT_OK


def _row(setting: Setting) -> tuple[str, str, str]:
    origin = setting.source if setting.origin in ("environment", "option") else setting.origin
    return setting.key, origin, _text(setting.value)


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _from_environment(args: argparse.Namespace, hv: Context) -> list[Setting]:
    """What is set outside the file."""
    return [
        _store_setting(args, hv.store.where),
        _variable("actor", ("HV_ACTOR", "LOGNAME", "USER"), hv.actor),
        _variable("log_level", ("HV_LOG_LEVEL",), os.environ.get("HV_LOG_LEVEL") or "info"),
    ]


def _store_setting(args: argparse.Namespace, where: str) -> Setting:
    if args.store:
        return Setting("store", where, "option", "--store")
    return _variable("store", ("HYPERVISOR_STORE",), where)


def _variable(key: str, variables: tuple[str, ...], value: str) -> Setting:
    source = next((name for name in variables if os.environ.get(name)), None)
    return Setting(key, value, "environment", source) if source else Setting(key, value, "default")


def _from_file(config: Mapping[str, Any], path: str) -> Iterator[Setting]:
    """The keys in order; those of the file in place of their default."""
    for section in SECTIONS:
        if not section.is_single:
            continue
        given = config.get(section.table, {})
        for name, key in section.keys.items():
            full_name = f"{section.table}.{name}"
            if name in given:
                yield Setting(full_name, given[name], "file", path)
            else:
                default = tomllib.loads(f"value = {key.default}")["value"] if key.default else None
                yield Setting(full_name, default, "default")
    yield from _named_tables(config, path)


def _named_tables(config: Mapping[str, Any], path: str) -> Iterator[Setting]:
    """The tables that have no defaults: per type, agent and price, and the routing rules."""
    tables = {f"limits.types.{n}": t for n, t in config.get("limits", {}).get("types", {}).items()}
    for kind in ("agents", "prices"):
        tables |= {f"{kind}.{name}": values for name, values in config.get(kind, {}).items()}
    tables |= {f"routing[{n}]": rule for n, rule in enumerate(config.get("routing", ()), 1)}
    for table_name, values in tables.items():
        for key, value in values.items():
            shown = dict.fromkeys(value, HIDDEN) if key == "env" else value
            yield Setting(f"{table_name}.{key}", shown, "file", path)
