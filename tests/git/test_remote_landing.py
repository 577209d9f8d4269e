"""Landing at a remote: only what the remote itself shows counts as merged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.git import pull_request
from hypervisor.git.landing import (
    Destination,
    Landed,
    Moved,
    PullRequest,
    Refused,
    Unreachable,
    find_tip,
    holds,
    land,
)
from hypervisor.selftest.repositories import Repo, bare_clone, write_script

BRANCH = "hv/nightly"


@pytest.fixture
def repo(tmp_path):
    repo = Repo(tmp_path / "the repository")
    repo.commit({"f": "1\n"}, "first")
    return repo


@pytest.fixture
def remote(repo, tmp_path):
    remote = bare_clone(repo, tmp_path / "remote.git")
    repo.git.run("remote", "add", "origin", f"file://{remote.folder}")
    return remote


@pytest.fixture
def hub(repo, remote, tmp_path):
    return bare_clone(repo, tmp_path / "hub.git")


def commit_in(hub, tmp_path, name, base="main"):
    """A commit that only the hub has."""
    other = Repo(tmp_path / f"workspace of {name}")
    other.git.run("fetch", "--quiet", hub.folder, base)
    other.git.run("reset", "--quiet", "--hard", "FETCH_HEAD")
    commit = other.commit({name: "x\n"}, name)
    hub.run("fetch", "--quiet", str(other.folder), f"main:refs/hv/tasks/{name}/1")
    return commit


@pytest.fixture
def made(hub, tmp_path):
    return commit_in(hub, tmp_path, "made")


@pytest.fixture
def pushing(repo, hub):
    return Destination(hub, str(repo.folder), "lane", "main", "push")


def hook(remote, name, text):
    write_script(Path(remote.folder, "hooks", name), f"#!/bin/sh\n{text}\n")


def known_tip(destination):
    found = find_tip(destination)
    assert not isinstance(found, Unreachable)
    return found


def tip(remote, branch="main"):
    return remote.commit_of(f"refs/heads/{branch}")


def test_a_push_that_the_remote_shows(repo, remote, pushing, made):
    base = known_tip(pushing)
    refs = repo.git.text("for-each-ref")
    assert land(pushing, base, made) == Landed(made, "main at origin")
    assert tip(remote) == made
    assert holds(pushing, made)
    assert repo.git.text("for-each-ref") == refs  # not even a remote-tracking branch
    assert isinstance(land(pushing, base, made), Landed)


def test_a_remote_that_has_moved(repo, remote, pushing, made):
    base = known_tip(pushing)
    theirs = repo.commit({"theirs": "1\n"})
    repo.git.run("push", "--quiet", remote.folder, "main")
    assert land(pushing, base, made) == Moved(theirs)
    assert tip(remote) == theirs
    assert pushing.hub.commit_of(theirs) == theirs
    assert find_tip(pushing) == theirs


def test_a_remote_that_was_moved_back(repo, remote, pushing, made):
    base = repo.tip()
    second = repo.commit({"theirs": "1\n"})
    repo.git.run("push", "--quiet", remote.folder, "main")
    assert find_tip(pushing) == second
    remote.run("update-ref", "refs/heads/main", base)
    assert land(pushing, second, made) == Moved(base)
    assert tip(remote) == base


def test_a_push_that_is_rejected(remote, pushing, made):
    base = known_tip(pushing)
    hook(remote, "pre-receive", "echo no pushes on Sundays >&2; exit 1")
    refused = land(pushing, base, made)
    assert isinstance(refused, Refused)
    assert "pre-receive hook declined" in refused.reason
    assert "no pushes on Sundays" in refused.reason
    assert tip(remote) == base


def test_a_push_that_is_accepted_and_dropped(remote, pushing, made):
    base = known_tip(pushing)
    hook(remote, "post-receive", f"git update-ref refs/heads/main {base}")
    refused = land(pushing, base, made)
    assert isinstance(refused, Refused)
    assert "accepted the push but does not show it" in refused.reason
    assert not holds(pushing, made)


def test_someone_pushes_on_top_at_once(remote, pushing, made, hub, tmp_path):
    base = known_tip(pushing)
    top = commit_in(hub, tmp_path, "top", "refs/hv/tasks/made/1")
    remote.run("fetch", "--quiet", hub.folder, f"{top}:refs/heads/spare")
    hook(remote, "post-receive", f"git update-ref refs/heads/main {top}")
    assert land(pushing, base, made) == Landed(made, "main at origin")
    assert find_tip(pushing) == top


def test_a_remote_that_vanishes(remote, pushing, made):
    base = known_tip(pushing)
    os.rename(remote.folder, remote.folder + ".away")
    for outcome in (find_tip(pushing), holds(pushing, made), land(pushing, base, made)):
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("cannot reach origin: ")
    os.rename(remote.folder + ".away", remote.folder)
    assert not holds(pushing, made)
    assert isinstance(land(pushing, base, made), Landed)


def test_a_remote_that_vanishes_after_it_took_the_push(remote, pushing, made):
    base = known_tip(pushing)
    hook(remote, "post-receive", f"mv '{remote.folder}' '{remote.folder}.away'")
    outcome = land(pushing, base, made)
    assert isinstance(outcome, Unreachable)
    assert "whether the push arrived" in outcome.reason
    os.rename(remote.folder + ".away", remote.folder)
    assert holds(pushing, made)


def test_a_branch_that_the_remote_does_not_have_yet(remote, repo, hub, made):
    where = Destination(hub, str(repo.folder), "lane", "release", "push")
    assert find_tip(where) is None
    assert isinstance(land(where, None, made), Landed)
    assert tip(remote, "release") == made


def test_a_relative_address_is_meant_from_the_users_repository(repo, remote, hub, made):
    repo.git.run("remote", "set-url", "origin", "../remote.git")
    where = Destination(hub, str(repo.folder), "lane", "main", "push")
    assert isinstance(land(where, known_tip(where), made), Landed)
    assert tip(remote) == made


def test_no_such_remote(repo, hub, made):
    where = Destination(hub, str(repo.folder), "lane", "main", "push", remote="upstream")
    with pytest.raises(InvalidInput, match="No such remote 'upstream'"):
        find_tip(where)


# A forge that keeps its pull requests in a file, and reads their heads from the remote.
FORGE = """#!/bin/sh
state='{state}'
echo "$@" >> "$state.calls"
case "$1 $2" in
"pr list"|"mr list")
    test -e "$state" || {{ echo '[]'; exit 0; }}
    head=$(git --git-dir='{remote}' rev-parse refs/heads/{branch})
    printf '[{{"{url}": "https://forge.example/1", "{head}": "%s"}}]' "$head";;
"pr create"|"mr create")
    test -e "$state.broken" && {{ echo "not logged in" >&2; exit 1; }}
    touch "$state"; echo https://forge.example/1;;
esac
"""


@pytest.fixture
def state(tmp_path):
    return tmp_path / "pull-requests"


@pytest.fixture
def forge(remote, state, tmp_path, monkeypatch):
    folder = tmp_path / "bin"

    def install(name):
        url, head = ("web_url", "sha") if name == "glab" else ("url", "headRefOid")
        text = FORGE.format(state=state, remote=remote.folder, branch=BRANCH, url=url, head=head)
        write_script(folder / name, text)

    folder.mkdir()
    (folder / "git").symlink_to(os.path.realpath("/usr/bin/git"))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(pull_request, "PAUSE", 0.0)
    return install


@pytest.fixture
def as_pull_request(repo, hub):
    about = PullRequest("Ten changes", "What they do")
    return Destination(
        hub, str(repo.folder), "lane", "main", "pr", branch=BRANCH, pull_request=about
    )


@pytest.mark.parametrize("program", ["gh", "glab"])
def test_a_pull_request(remote, as_pull_request, made, forge, state, program):
    forge(program)
    base = known_tip(as_pull_request)
    assert land(as_pull_request, base, made) == Landed(made, "https://forge.example/1")
    assert tip(remote, BRANCH) == made
    assert tip(remote) == base
    calls = Path(f"{state}.calls").read_text()
    assert "Ten changes" in calls
    assert isinstance(land(as_pull_request, base, made), Landed)
    assert calls.count("create") == 1


def test_a_second_landing_updates_the_pull_request(
    remote, as_pull_request, made, forge, state, hub, tmp_path
):
    forge("gh")
    land(as_pull_request, known_tip(as_pull_request), made)
    assert find_tip(as_pull_request) == made
    more = commit_in(hub, tmp_path, "more", "refs/hv/tasks/made/1")
    assert land(as_pull_request, made, more) == Landed(more, "https://forge.example/1")
    calls = Path(f"{state}.calls").read_text()
    assert calls.count("create") == 1


def test_a_pull_request_that_cannot_be_opened(remote, as_pull_request, made, forge, state):
    forge("gh")
    Path(f"{state}.broken").touch()
    refused = land(as_pull_request, known_tip(as_pull_request), made)
    assert isinstance(refused, Refused)
    assert refused.reason == (
        "hv/nightly was pushed to origin, but the pull request was not created: not logged in"
    )


def test_without_a_program_for_pull_requests_nothing_is_pushed(
    remote, as_pull_request, made, forge
):
    refused = land(as_pull_request, known_tip(as_pull_request), made)
    assert isinstance(refused, Refused)
    assert "neither is installed" in refused.reason
    assert tip(remote, BRANCH) is None
