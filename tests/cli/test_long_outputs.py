"""Only the head and tail of a long output are kept: nothing may treat that as the whole."""

from pathlib import Path

import pytest

LONG = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]


@pytest.fixture(params=["sqlite", "postgres"])
def hv(project, request):
    if request.param == "postgres":
        project.env["HYPERVISOR_STORE"] = request.getfixturevalue("postgres_url")
    config = Path(project.ok("config", "path").strip())
    config.parent.mkdir(parents=True, exist_ok=True)
    kept = config.read_text() if config.exists() else ""
    config.write_text(f'{kept}\n[outputs]\nkeep_each = "1M"\n')
    return project


def test_a_run_that_could_not_print_everything_does_not_succeed(hv):
    done = hv("run", "--name", "b", "--print", "--item", "x", "--", *LONG)
    assert len(done.out) < 3_000_000 and "bytes left out by Hypervisor" in done.out
    assert done.code == 9 and "hv: 1 output could not be printed in full (first: x)" in done.err


@pytest.mark.parametrize("placeholder", ["{output}", "{result}"])
def test_a_stage_is_not_run_with_a_part_of_what_came_before(hv, placeholder):
    args = ["--item", "x", "--then", f"touch ran {placeholder}", "--", *LONG]
    done = hv("run", "--name", "b", *args)
    assert done.code == 9 and f"{placeholder} is incomplete" in done.out
    assert not (hv.folder / "ran").exists()


def test_a_stage_that_does_not_read_it_runs(hv):
    done = hv("run", "--name", "b", "--item", "x", "--then", "touch ran {}", "--", *LONG)
    assert done.code == 0 and (hv.folder / "ran").exists()
