"""Put the Chromium that is pinned in tests/web/browser/chromium into a folder, and print its path.

The npm package has the program itself, compressed, with the libraries that a bare system lacks. It
is unpacked into a new folder that gets its name when it is complete. Node is not needed: see
scripts/web_assets.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from web_assets import ROOT, node_tool, run

PINS = ROOT / "tests" / "web" / "browser" / "chromium"
PACKAGE = "node_modules/@sparticuz/chromium/bin"
UNPACK = """
const fs = require("fs"), zlib = require("zlib"), [from, to] = process.argv.slice(-2);
for (const name of fs.readdirSync(from).filter(name => name.endsWith(".br"))) {
  const content = zlib.brotliDecompressSync(fs.readFileSync(`${from}/${name}`));
  fs.writeFileSync(`${to}/${name.slice(0, -3)}`, content);
}
"""
# It takes its language from the locale, and that of scripts is none.
START = """#!/bin/sh
here=${0%/*}
export LC_ALL=en_US.UTF-8 LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/LIBRARIES"
exec "$here/program" "$@"
"""


def main() -> None:
    folder = Path(sys.argv[1])
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="chromium-") as work:
            made = unpacked(Path(work))
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # another start was faster
                    raise
    print(folder / "chromium")


def unpacked(work: Path) -> Path:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINS / name, work)
    environment = os.environ | {"npm_config_cache": str(work / "cache")}
    command = [*node_tool("npm", work), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*command, "--loglevel=error"], cwd=work, env=environment)
    made = work / "made"
    made.mkdir()
    (work / "unpack.js").write_text(UNPACK)
    run([*node_tool("node", work), "unpack.js", PACKAGE, str(made)], cwd=work)
    for archive in made.glob("*.tar"):
        with tarfile.open(archive) as files:
            files.extractall(made, filter="data")
        archive.unlink()
    (made / "chromium").rename(made / "program")
    (made / "program").chmod(0o755)
    start = made / "chromium"
    start.write_text(START.replace("LIBRARIES", "lib" if lacks_libraries(made) else ""))
    start.chmod(0o755)
    return made


def lacks_libraries(made: Path) -> bool:
    """Whether this system has not all of them; its own are better where it has."""
    done = subprocess.run(["ldd", str(made / "program")], capture_output=True, text=True)
    return "not found" in done.stdout


if __name__ == "__main__":
    main()
