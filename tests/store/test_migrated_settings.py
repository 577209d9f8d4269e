"""What older versions kept in the settings, or not at all, is moved to where it belongs."""

from __future__ import annotations

from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.queue.sql import item_files
from tests.store.old_stores import set_version

COUNTS = ("counts", "count_changes", "counted_events")

# What version 13 kept of pipelines: of one with a reduce that is pending, of one that was submitted
# once more with another stage, and of one without a reduce.
OLD_PIPELINES = {
    "pattern a1": '[["a1", "a2"], "a3", "t1", true]',
    "pattern a2": '[["a1", "a2"], "a3", "t1", true]',
    "pattern a3": '[["a1", "a2"], "a3", "t1", true]',
    "untended a1": "f00d",
    "gathered t1": "abc",
    "pattern b1": '[["b1", "b3"], "", "", false]',
    "pattern b2": '[["b1", "b2"], "", "", false]',
    "pattern b3": '[["b1", "b3"], "", "", false]',
    "gathered t2": "",
    "pattern c1": '[["c1"], "c2", "t3"]',  # from before there was fail-fast
    "pattern c2": '[["c1"], "c2", "t3"]',
    "other": "not JSON",
}
# What version 15 kept in the settings.
OLD_SETTINGS = {
    "workers": "4",
    "workers b00000000001": "3",
    "workers gone": "3",
    "retry_delay b00000000001": "7000",
    "latest run": "1763000000000 b00000000001",
    "skipped b00000000001": "12",
    "budget warned b00000000001": "5000000 None",
    "peak run": str(1 << 40),
    "peak two words": "5",
    "peak agent claude": "6",
    "parallel prior run": '{"benefit": 0.5}',
    "learned ant": "77",
    "learned ant|run: make | sort": '{"type": "run"}',
    "clock time:[4026531834]": "boot-1 -1763000000000",
}


def test_pipelines_come_out_of_the_settings(old):
    ledger = old.open()
    for name, value in OLD_PIPELINES.items():
        ledger.set(name, value)
    ledger.close()
    undo_columns_for_settings(old)
    for table in ("pipelines", "pipeline_batches", "reduce_inputs", "item_files"):
        old.run(f"DROP TABLE {table}")
    set_version(old, 13)
    ledger = old.open()
    read = ledger._db.read
    one, two = Pipeline(("a1", "a2"), "a3", "t1", True), Pipeline(("b1", "b3"))
    found = {batch: read(pipelines.of_batch, batch) for batch in ("a1", "a2", "a3", "b1", "b3")}
    assert found == {"a1": one, "a2": one, "a3": one, "b1": two, "b3": two}
    assert read(pipelines.of_batch, "b2") is None
    assert read(pipelines.of_batch, "c2") == Pipeline(("c1",), "c2", "t3")
    assert read(pipelines.pending) == ["a1"] and read(pipelines.pending_submission, "a1") == 1
    assert (ledger.reduce_input("t1"), ledger.reduce_input("t2")) == ("abc", "")
    assert ledger.setting("other") == "not JSON"
    assert not any(ledger.setting(name) for name in OLD_PIPELINES if name != "other")
    ledger.close()


def undo_columns_for_settings(old):
    """And what came after that."""
    old.run("DROP INDEX tasks_in_order")
    old.run("DROP INDEX findings_unreviewed")
    old.run("ALTER TABLE findings DROP COLUMN trust")
    old.run("ALTER TABLE workers DROP COLUMN leased_by")
    for column in ("spend_code", "calls", "refused", "refusal"):
        old.run(f"ALTER TABLE sessions DROP COLUMN {column}")
    for column in ("merges", "archived_at", "deleting"):
        old.run(f"ALTER TABLE batches DROP COLUMN {column}")
    for table in (
        "hosts",
        "output_ends",
        "output_tails",
        "messages",
        "landings",
        "submissions",
        "workspaces",
        "merge_lanes",
        "merge_entries",
        "verdicts",
        *COUNTS,
    ):
        old.run(f"DROP TABLE {table}")
    for column in ("workers", "retry_delay", "run_at", "skipped", "budget_warned"):
        old.run(f"ALTER TABLE batches DROP COLUMN {column}")
    for table in (
        "memory_peaks",
        "parallel_priors",
        "learned_records",
        "learner_cursors",
        "clocks",
    ):
        old.run(f"DROP TABLE {table}")


def test_state_comes_out_of_the_settings(old):
    ledger = old.open()
    for name, value in OLD_SETTINGS.items():
        ledger.set(name, value)
    ledger.close()
    undo_columns_for_settings(old)
    set_version(old, 15)
    old.open().close()
    batch = "workers, retry_delay, run_at, skipped, budget_warned FROM batches"
    rows = {
        batch: [(3, 7000, 1763000000000, 12, "5000000 None")],
        "type, agent, bytes FROM memory_peaks": [
            ("", "claude", 6),
            ("run", "", 1 << 40),
            ("two words", "", 5),
        ],
        "type, prior FROM parallel_priors": [("run", '{"benefit": 0.5}')],
        "host, kind, record FROM learned_records": [("ant", "run: make | sort", '{"type": "run"}')],
        "host, number FROM learner_cursors": [("ant", 77)],
        "namespace, boot, ahead FROM clocks WHERE namespace = 'time:[4026531834]'": [
            ("time:[4026531834]", "boot-1", -1763000000000)
        ],
    }
    for query, expected in rows.items():
        assert sorted(old.query(f"SELECT {query}")[0]) == expected
    assert sorted(old.query("SELECT name FROM settings")[0]) == [("store id",), ("workers",)]


def test_what_was_done_before_files_were_recorded_cannot_be_compared(old):
    old.open().close()
    undo_columns_for_settings(old)
    old.run("DROP TABLE item_files")
    old.run("UPDATE tasks SET state = 'done', batch = 'b00000000001' WHERE id = '000000000003'")
    set_version(old, 14)
    ledger = old.open()
    done = ledger._db.read(item_files.done_files, ["000000000001", "000000000003"])
    assert done == {"000000000003": item_files.DoneFile(1, 1, (-1, 0, ""))}
    ledger.close()
