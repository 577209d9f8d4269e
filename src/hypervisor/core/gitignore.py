"""The .gitignore of a .hypervisor folder: all but the skills, which are meant to be shared."""

import os

NOTHING = "*\n"  # what older versions wrote
SKILLS_ONLY = "*\n!/skills/\n!/skills/**\n"
FILE = ".gitignore"


def unignore_skills(folder: str) -> None:
    """Update a folder that an older version made; a file that a person edited stays as it is."""
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() != NOTHING:
                return
        with open(path, "w", encoding="utf-8") as file:
            file.write(SKILLS_ONLY)
    except (OSError, ValueError):
        return
