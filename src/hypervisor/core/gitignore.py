"""The .gitignore of a .hypervisor folder: everything but the skills, which are shared."""

import os

NOTHING = "*\n"  # as older versions wrote it
SKILLS_ONLY = "*\n!/skills/\n!/skills/**\n"
FILE = ".gitignore"


def unignore_skills(folder: str) -> None:
    """Update a folder that an older version made; an edited file stays as it is."""
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() != NOTHING:
                return
        with open(path, "w", encoding="utf-8") as file:
            file.write(SKILLS_ONLY)
    except (OSError, ValueError):
        return
