"""What the scripts fake-claude, fake-codex and fake-gemini start; nothing of Hypervisor in it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.standins.acts import ACTS
from tests.support.standins.run import Run


def main(kind: str, argv: list[str]) -> int:
    if argv == ["--version"]:
        print(f"1.2.3 (fake {kind})")
        return 0
    run = Run(kind, argv)
    return ACTS[run.act](run) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
