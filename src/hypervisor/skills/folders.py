"""Where skills are kept, and reading them: the project's, the user's, the built-in ones.

A skill hides those of the same name in later places. A folder is read only when its skill is
used, and nothing outside it is read. Files of another user are refused, because a skill runs code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from hypervisor.core import store_path
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import closest
from hypervisor.skills.fields import NAME, check_name
from hypervisor.skills.skill import FILE, MAX_SIZE, Skill, read_skill

SkillKind = Literal["project", "user", "built-in"]
PROJECT: Final = "project"
USER: Final = "user"
BUILT_IN: Final = "built-in"
DATA = store_path.FOLDER
FOLDER = "skills"
OLD_NAMES = {"summarise": "summarize"}


class Place(NamedTuple):
    kind: SkillKind
    folder: str


class FoundSkill(NamedTuple):
    """A skill, where it was found, and the folders of the same name that it hides."""

    skill: Skill
    kind: SkillKind
    folder: str
    hides: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """A file of its folder."""
        return os.path.join(self.folder, name)


class BrokenSkill(NamedTuple):
    """A folder whose skill cannot be read, and why."""

    name: str
    kind: SkillKind
    folder: str
    why: str


def places(env: Mapping[str, str] | None = None, folder: str = "") -> tuple[Place, ...]:
    """Where skills are searched from a folder (default: the current one), in this order."""
    shared = (Place(USER, user_folder(env)), Place(BUILT_IN, built_in_folder()))
    project = project_folder(folder)
    return (Place(PROJECT, project), *shared) if project else shared


def project_folder(folder: str = "") -> str | None:
    """The skills of the project around a folder (default: the current one), found like .git."""
    try:
        data = store_path.find_upwards(folder or os.getcwd(), DATA)
    except OSError:
        return None
    return os.path.join(data, FOLDER) if data else None


def user_folder(env: Mapping[str, str] | None = None) -> str:
    env = os.environ if env is None else env
    config = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):
        config = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(config, "hypervisor", FOLDER)


def built_in_folder() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "builtin")


def find_skill(name: str, where: tuple[Place, ...] | None = None) -> FoundSkill | None:
    """The skill with that name, or None. InvalidInput: it cannot be used."""
    if not NAME.match(name):
        return None
    folders = [
        (place, folder)
        for place in (places() if where is None else where)
        if os.path.lexists(os.path.join(folder := os.path.join(place.folder, name), FILE))
    ]
    if not folders:
        return find_skill(OLD_NAMES[name], where) if name in OLD_NAMES else None
    (place, folder), *hidden = folders
    skill = read_folder(folder, place.kind)
    return FoundSkill(skill, place.kind, folder, tuple(path for _, path in hidden))


def require_skill(name: str) -> FoundSkill:
    """The skill with that name. NotFound suggests the nearest one."""
    check_name(name)
    skill = find_skill(name)
    if skill is None:
        raise NotFound(f"no skill named {name!r}.{nearest(name)} `hv skills` lists all skills.")
    return skill


def nearest(name: str) -> str:
    similar = closest(name, skill_names())
    return f" Did you mean {similar}?" if similar else ""


def skill_names(where: tuple[Place, ...] | None = None) -> list[str]:
    """The names of all skills, whether they can be read or not."""
    return sorted({name for place in where or places() for name in _names_in(place.folder)})


def all_skills(
    where: tuple[Place, ...] | None = None,
) -> tuple[list[FoundSkill], list[BrokenSkill]]:
    """All skills by name without hidden ones, and those that cannot be read."""
    where = where or places()
    usable: list[FoundSkill] = []
    broken: list[BrokenSkill] = []
    for name in skill_names(where):
        try:
            skill = find_skill(name, where)
        except InvalidInput as error:
            place = next(p for p in where if name in _names_in(p.folder))
            folder = os.path.join(place.folder, name)
            broken.append(BrokenSkill(name, place.kind, folder, str(error)))
        else:
            if skill is not None:
                usable.append(skill)
    return usable, broken


def _names_in(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [
        name
        for name in names
        if NAME.match(name) and os.path.lexists(os.path.join(folder, name, FILE))
    ]


def read_folder(folder: str, kind: SkillKind) -> Skill:
    """Read the skill of a folder, and check the files it refers to."""
    path = os.path.join(folder, FILE)
    around = (os.path.dirname(os.path.dirname(folder)), os.path.dirname(folder), folder, path)
    if kind != BUILT_IN:
        _refuse_foreign(around)
    try:
        skill = read_skill(_content(folder, FILE, MAX_SIZE), os.path.basename(folder))
        for name in skill.files:
            own = check_inside(folder, name)
            if kind != BUILT_IN:
                _refuse_foreign((own,))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return skill


def check_inside(folder: str, name: str) -> str:
    """The path of a file of the folder; it must be a regular file, not a link to elsewhere."""
    path = os.path.join(folder, name)
    root = os.path.realpath(folder)
    if not os.path.realpath(path).startswith(root.rstrip("/") + "/"):
        raise InvalidInput(f"{name} is outside the skill's folder.")
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{name} is not a regular file.")
    return path


def _content(folder: str, name: str, most: int) -> bytes:
    path = check_inside(folder, name)
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}.") from None


def _refuse_foreign(paths: Iterable[str]) -> None:
    """Refuse files that another user owns and could change."""
    for path in paths:
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue
        if owner not in (os.getuid(), 0):
            raise InvalidInput(
                f"{path} belongs to another user; a skill runs code, so it was not used."
            )
