"""`hv report`: one file, from a real run."""

import json
import os
import resource
import stat

import pytest

import hypervisor
from hypervisor.batches.report import report
from hypervisor.cli.commands.report import write
from hypervisor.core.errors import InvalidInput


def kept(project):
    """The store without its workers: one may still be starting or exiting."""
    return {table: rows for table, rows in project.content().items() if table != "workers"}


def test_a_report_of_a_real_run(project):
    script = 'echo "<b>working</b> on $1"; [ "$1" != b ]'
    project(
        "run",
        "-q",
        "--name",
        "pages",
        "--workers",
        "2",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        stdin="a\nb\nc\n",
    )
    before = kept(project)
    path = project.ok("report", "pages").strip()

    assert path == str(project.folder / ".hypervisor" / "batches" / "pages" / "report.html")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "1 of 3 did not succeed" in text and "exit code 1" in text
    assert "&lt;b&gt;working&lt;/b&gt; on b" in text and "<b>working" not in text
    assert text.count("<svg") >= 3 and "<rect" in text
    mode = stat.S_IMODE((project.folder / ".hypervisor/batches/pages").stat().st_mode)
    assert mode & 0o077 == 0
    assert kept(project) == before


def test_where_it_shall_go_and_as_json(hv):
    hv.ok("add", "--batch", "b", "a task")
    told = hv.json("report", "b", "--out", "deep.html", "--json-data")
    written = hv.folder / "deep.html"
    assert told == {"batch": "b", "path": str(written), "bytes": written.stat().st_size}
    data = written.read_text().split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["states"] == {"active": 1}


def test_what_cannot_be_done_is_one_line_and_leaves_nothing(hv):
    hv.ok("add", "--batch", "b", "a task")
    hv.refused(4, "report", "no-such-batch")
    (hv.folder / "folder").mkdir()
    assert "is a folder" in hv.refused(2, "report", "b", "--out", "folder")
    hv.refused(2, "report", "b", "--out", "no/such/folder/x.html")
    assert sorted(path.name for path in hv.folder.iterdir()) == [".hypervisor", "folder"]


@pytest.mark.parametrize("out", [None, "page.html"])
def test_a_page_that_does_not_fit_leaves_nothing_behind(hv, tmp_path, out):
    hv.ok("add", "--batch", "b", "a task")
    before = set(tmp_path.rglob("*"))
    with hypervisor.open(hv.store) as opened:
        found = report(opened, "b")
        _ = opened.batch_files
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        try:
            with pytest.raises((OSError, InvalidInput), match="File too large"):
                write(opened, found, out and str(tmp_path / out))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left <= before, left - before


def test_what_is_kept_of_a_batch_is_private_whatever_the_umask(project):
    before = os.umask(0)
    try:
        project(
            "run", "-q", "--name", "pages", "--chunk-size", "2", "--", "echo", stdin="a\nb\nc\n"
        )
        project.ok("report", "pages")
    finally:
        os.umask(before)
    data = project.folder / ".hypervisor"
    ours = [path for path in data.rglob("*") if path.name not in ("config.toml", ".gitignore")]
    assert data / "batches" in ours
    assert [str(path) for path in ours if path.stat().st_mode & 0o077] == []
