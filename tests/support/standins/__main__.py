"""The program behind fake-claude, fake-codex and fake-gemini; it uses nothing from Hypervisor."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.standins import failing, working  # noqa: F401 (they fill ACTS)
from tests.support.standins.acting import ACTS
from tests.support.standins.run import Run


def main(kind: str, argv: list[str]) -> int:
    if argv == ["--version"]:
        print(f"1.2.3 (fake {kind})")
        return 0
    run = Run(kind, argv)
    return ACTS[run.act](run) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
