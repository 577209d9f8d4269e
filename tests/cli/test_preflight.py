"""`hv preflight`: the short report first, a meaningful exit code, and nothing changed."""

import json


def task(hv, path, head, body=""):
    file = hv.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\n{head}\n---\n{body}")


def kept(project):
    """The store without its workers: one may still be starting or exiting."""
    return {table: rows for table, rows in project.content().items() if table != "workers"}


def test_without_a_store_it_looks_and_makes_none(bare):
    done = bare("preflight", "--item", "a", "--item", "b", "--workers", "2", "--", "true")
    assert done.code == 0
    assert done.out.splitlines()[0] == "2 to do"
    assert "a direct worker for each is enough" in done.out
    assert not (bare.folder / ".hypervisor").exists()


def test_the_words_of_a_run_serve_for_both(project):
    words = ["--workers", "2", "--", "sh", "-c", '[ "$1" != b ]', "sh"]
    assert project("run", "-q", *words, stdin="a\nb\nc\n").code == 9
    before = kept(project)
    done = project("preflight", *words, stdin="a\nb\nc\nd\ne\nf\ng\n")

    assert done.code == 0, done
    assert done.out.splitlines()[0] == "5 to do, 2 skipped (already done)"
    assert "1 to be retried" in done.out and "run them as a batch" in done.out
    assert kept(project) == before


def test_what_stands_in_the_way_is_reported_and_ends_with_9(hv):
    task(hv, "t/1.md", "id: T-1\ntitle: One\nfiles: [src/a.py]\ndepends_on: [T-2]")
    task(hv, "t/2.md", "id: T-2\ntitle: Two\nfiles: [src/a.py]\ndepends_on: [T-1, T-9]")
    task(hv, "t/3.md", "id: T-3\ntitle: Three\nstatus: done")
    before = hv.content()
    done = hv("preflight", "--items", "t", "--format", "tasks", "--name", "b")

    assert done.code == 9
    first, *rest = done.out.splitlines()
    assert first == (
        "2 to do, 1 skipped (already done), 1 conflict will run one at a time, 2 problems"
    )
    text = "\n".join(rest)
    assert "T-9 (t/2.md)" in text and "t/1.md → t/2.md → t/1.md" in text
    assert "src/a.py: 2 items (t/1.md, t/2.md)" in text
    assert hv.content() == before


def test_as_json(hv):
    done = hv("preflight", "--json", "--item", "gone.md")
    found = json.loads(done.out)
    assert done.code == 9
    assert (found["to_do"], found["clear"], found["headline"]) == (1, False, "1 to do, 1 problem")
    assert found["findings"][0]["kind"] == "unreadable"
    assert found["findings"][0]["in_the_way"] is True


def test_known_names_and_files_in_the_text(hv):
    (hv.folder / "a.py").touch()
    for number in (1, 2):
        task(hv, f"t/{number}.md", f"id: T-{number}\ntitle: x\nassignee: ann", "See `a.py`.")
    words = ["preflight", "--items", "t", "--format", "tasks"]
    assert "conflict" not in hv.ok(*words, "--known", "ann")
    assert "1 conflict" in hv.ok(*words, "--in-text")
    assert hv(*words, "--known", "bob").code == 9


def test_hostile_names_stay_on_their_line(hv):
    done = hv("preflight", "--item", "\x1b[2Jgone.md", "--item", "evil\u202e.md")
    assert done.code == 9
    assert all(line.isprintable() for line in done.out.splitlines())


def test_a_mistake_is_one_line(hv):
    hv.refused(2, "preflight", "--items", "no-such-file")
    hv.refused(2, "preflight", "--item", "x", "--cwd", "no-such-folder")
