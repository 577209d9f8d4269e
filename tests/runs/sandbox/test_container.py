"""The container level, with a stand-in for the engine that runs the command itself."""

from __future__ import annotations

import json

ENGINE = """#!/usr/bin/env python3
import json, os, subprocess, sys
with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    words = sys.argv[sys.argv.index("my/image:1") + 1:]
    sys.exit(subprocess.call(words))
"""


def test_a_command_runs_in_a_container_that_is_removed(project):
    log = project.folder.parent / "engine.log"
    engine = project.folder.parent / "engine"
    engine.write_text(ENGINE.format(log=str(log)))
    engine.chmod(0o755)
    project.configure(f'[sandbox]\nimage = "my/image:1"\nengine = "{engine}"\n')
    project.env["PLANTED"] = "secret-value"
    words = ("--sandbox", "container", "--quiet", "--print", "--name", "b")
    ended = project.run(*words, "--", "/usr/bin/env", "echo", items=["hello"])
    assert ended.code == 0 and "hello" in ended.out, ended.err + project.story()
    run, removal = (json.loads(line) for line in log.read_text().splitlines())
    assert run[:4] == ["run", "--rm", "--interactive", "--init"]
    assert run[run.index("my/image:1") + 1 :] == ["env", "echo", "hello"]
    folder = str(project.folder)
    assert f"{folder}:{folder}" in run and run[run.index("--workdir") + 1] == folder
    assert "PLANTED" in run and not any("secret-value" in word for word in run)
    assert removal == ["rm", "--force", run[run.index("--name") + 1]]
    with project.open() as hv:
        receipts = [receipt.text for receipt in hv.receipts("b")]
    assert receipts == ["sandbox: container, built with container"]


def test_without_an_image_or_an_engine_nothing_starts(project):
    ended = project.run("--sandbox", "container", "--", "true", items="a")
    assert ended.code == 15 and "set `image` in [sandbox]" in ended.err
    project.configure('[sandbox]\nimage = "i"\nengine = "no-such-engine"\n')
    ended = project.run("--sandbox", "container", "--", "true", items="a")
    assert ended.code == 15 and "no-such-engine, which is not installed" in ended.err
