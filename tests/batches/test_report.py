"""The report of a batch: the right figures, bounded, and a page that no text can break."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from hypervisor.batches.files import BatchFiles
from hypervisor.batches.report import MAX_BAD, MAX_FAILURES, report
from hypervisor.batches.timeline import MAX_LANES, Attempts, Lane, Segment, packed_lanes
from hypervisor.cli.commands.report import write
from hypervisor.cli.json_form import plain
from hypervisor.queue.context import Context
from hypervisor.queue.history import AttemptLine
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from hypervisor.web.rendering import source_hash
from hypervisor.web.report.charts import Axis, ticks
from hypervisor.web.report.page import page
from tests.support.ledger import Ledger
from tests.support.parts import parts

NOW = 1_800_000_000_000
MARKUP = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
BAD = MARKUP + "\u202egnp.exe\x1b[31m\0\ud800"
HOSTILE = BAD.replace("\0", "").replace("\ud800", "")  # what the store takes


def worker(number):
    return Worker(f"w-{number}", f"worker-{number}", "here", "boot/1", number, 1)


@pytest.fixture
def hv(tmp_path):
    data = str(tmp_path)
    given = parts(outputs=Outputs(data), batch_files=BatchFiles(data))
    store = Ledger(SqliteDatabase(str(tmp_path / "store.db"), relaxed=True))
    context = Context(store, LocalHost(), "me", parts=given)
    yield context
    context.close()


class Batch:
    """A batch whose tasks the test completes itself."""

    def __init__(self, hv, titles, name="b", **more):
        self.hv, self.name = hv, name
        spec = {"cwd": "/", "command": ["work", "{}"]}
        self.id = hv.store.declare(name, spec, "me", NOW).id
        hv.store.add([NewTask(title, **more) for title in titles], name, "me", NOW)

    def claim(self, at, by=1, limit=1):
        request = ClaimRequest(worker(by), limit, 60_000, ClaimFilter(batch=self.id))
        return self.hv.store.claim(request, NOW + at)

    def end(self, lease, event, at, result=None, reason=None, printed=None, receipts=()):
        if printed is not None:
            path = self.hv.outputs.prepare(lease.task.id, lease.task.attempts)
            with open(path, "wb") as file:
                file.write(printed)
        usage = Usage(3 if event == "fail" else 0, 250, 2048, len(printed or b""))
        token = parse_token(lease.token)
        self.hv.store.settle(
            [AttemptResult(token, event, result, reason, None, None, usage, receipts)], NOW + at
        )


class Elements(HTMLParser):
    """All elements of a page and its text; fails on elements that our pages never have."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.scripts = [], [], [], []
        self._raw = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._raw = tag if tag in ("script", "style") else None

    def handle_data(self, data):
        (self.scripts if self._raw else self.text).append(data)

    def handle_endtag(self, tag):
        self._raw = None


class TestFigures:
    def test_counts_costs_and_categories(self, hv):
        batch = Batch(hv, ["one", "two", "three", "four"])
        for at, category in ((0, "mail"), (1_000, "mail"), (2_000, "bill")):
            (lease,) = batch.claim(at)
            result = {"category": category, "actions": [{"do": "move", "path": "a", "to": "b"}]}
            batch.end(lease, "complete", at + 500, result)
        (lease,) = batch.claim(3_000, by=2)
        batch.end(lease, "fail", 3_800, reason="exit code 3", printed=b"first\n\nlast words\r\n")
        found = report(hv, "b", NOW + 10_000)

        assert (found.states, found.total, found.bad) == ({"done": 3, "failed": 1}, 4, 1)
        assert not found.succeeded and found.what == "work {}"
        assert (found.begun, found.ended) == (NOW, NOW + 3_800)
        assert (found.attempts, found.cpu_seconds, found.peak_bytes) == (4, 1.0, 2 << 20)
        named = [(each.name, each.items, each.samples) for each in found.categories]
        assert named == [("mail", 2, ("one", "two")), ("bill", 1, ("three",))]
        assert found.proposals == {"move": 3} and found.reasons == (("exit code 3", 1),)
        (failure,) = found.failures
        assert (failure.task.title, failure.exit_code) == ("four", 3)
        assert failure.lines == ("first", "last words")
        assert found.slowest[0].title == "four" and found.slowest[0].milliseconds == 800
        assert [lane.worker for lane in found.timeline.lanes] == ["worker-1", "worker-2"]
        assert sum(each.good + each.bad for each in found.durations) == 4
        assert found.median_ms == 500

    def test_items_that_one_task_stands_for_have_their_own_categories(self, hv):
        batch = Batch(hv, ["a chunk"])
        (lease,) = batch.claim(0)
        items = [{"item": "m1", "category": "x"}, {"item": "m2", "category": "y"}, "no item"]
        batch.end(lease, "complete", 10, {"items": items})
        named = [(each.name, each.samples) for each in report(hv, "b", NOW).categories]
        assert named == [("x", ("m1",)), ("y", ("m2",))]

    def test_no_categories_are_shown_where_nobody_named_any(self, hv):
        batch = Batch(hv, ["a"])
        batch.end(batch.claim(0)[0], "complete", 10, {"other": 1})
        found = report(hv, "b", NOW)
        assert found.categories == () and found.succeeded
        assert "Categories" not in page(found)

    def test_receipts_chunks_and_their_decisions(self, hv):
        batch = Batch(hv, [])
        hv.store.declare_chunks(batch.id, ["2026-01", "2026-02"], "each")
        hv.store.add([NewTask("a", chunk=1), NewTask("b", chunk=2)], "b", "me", NOW)
        batch.end(batch.claim(0)[0], "complete", 10, receipts=("filed it under X",))
        hv.store.decide_chunk(batch.id, 1, "rejected", "not like this", "ann", NOW + 50)
        found = report(hv, "b", NOW + 60)
        assert [(each.number, each.state) for each in found.chunks] == [
            (1, "rejected"),
            (2, "open"),
        ]
        assert found.receipts_total == 2 and found.receipts_problem is None
        text = "".join(Elements(page(found)).text)
        for said in ("2026-02", "not like this", "ann", "filed it under X", "nothing was changed"):
            assert said in text

    def test_a_batch_without_tasks_or_attempts_has_a_report(self, hv):
        Batch(hv, [], "empty")
        assert "No tasks yet" in page(report(hv, "empty", NOW))
        Batch(hv, ["a"], "waiting")
        assert "1 of 1 not finished" in page(report(hv, "waiting", NOW))

    def test_an_attempt_that_runs_lasts_until_now(self, hv):
        batch = Batch(hv, ["a"])
        batch.claim(0)
        (lane,) = report(hv, "b", NOW + 700).timeline.lanes
        assert lane.segments[0][:3] == (NOW, NOW + 700, "running")


def tries(*lines):
    made = Attempts(NOW + 10_000)
    for number, (by, start, end, outcome) in enumerate(lines):
        ended = None if end is None else NOW + end
        made.add(AttemptLine(f"{number:012}", 1, by, by, NOW + start, ended, outcome, 1, 1))
    made.separate()
    return made


class TestTimeline:
    def test_what_was_claimed_together_was_worked_on_one_by_one(self):
        made = tries(
            ("a", 0, 100, "done"),
            ("a", 0, 250, "done"),
            ("a", 0, 300, "failed"),
            ("b", 0, 90, "done"),
        )
        first, second = made.timeline({}).lanes
        spans = [(each.start - NOW, each.end - NOW) for each in first.segments]
        assert spans == [(0, 100), (100, 250), (250, 300)]
        assert [each.end - NOW for each in second.segments] == [90]

    def test_what_was_written_down_together_shares_the_time(self):
        made = tries(*[("a", 0, 400, "done")] * 4)
        (lane,) = made.timeline({}).lanes
        assert [each.start - NOW for each in lane.segments] == [0, 100, 200, 300]

    def test_long_pauses_are_cut_out_and_nothing_else(self):
        day = 86_400_000
        made = tries(
            ("a", 0, 60_000, "done"),
            ("a", 70_000, 90_000, "done"),
            ("a", day, day + 30_000, "done"),
        )
        stretches = [(start - NOW, end - NOW) for start, end in made.timeline({}).stretches]
        assert stretches == [(0, 90_000), (day, day + 30_000)]

    def test_the_axis_goes_there_and_back(self):
        axis = Axis([(NOW, NOW + 1_000), (NOW + 50_000, NOW + 53_000)])
        places = [axis.place(NOW + at) for at in (0, 1_000, 50_000, 53_000)]
        assert places[0] == 0 and places[3] == pytest.approx(1000)
        assert places == sorted(places) and places[2] - places[1] == pytest.approx(10)
        assert axis.moment(0) == NOW and axis.moment(1) == NOW + 53_000
        for share in (0.1, 0.5, 0.9):
            assert axis.place(axis.moment(share)) == pytest.approx(1000 * share, abs=1)

    def test_the_labels_of_the_axis_differ(self):
        day = 86_400_000
        short = tries(("a", 0, 40_000, "done"), ("a", day, day + 40_000, "done")).timeline({})
        long = tries(("a", 0, 40_000_000, "done"), ("a", day, 2 * day, "done")).timeline({})
        for timeline, length in ((short, 14), (long, 11)):
            labels = ticks(timeline)
            assert len(set(labels)) == 5 and {len(label) for label in labels} == {length}

    @pytest.mark.parametrize("milliseconds", [0, 1, 3, 120, 900, 4_000, 86_400_000])
    def test_no_label_of_the_axis_is_repeated(self, milliseconds):
        labels = ticks(tries(("a", 250, 250 + milliseconds, "done")).timeline({}))
        shown = [label for label in labels if label]
        assert len(labels) == 5 and shown and len(set(shown)) == len(shown), labels
        if milliseconds == 120:
            assert [label[-4:] for label in shown] == [".250", ".280", ".310", ".340", ".370"]

    def test_many_attempts_become_cells_that_lose_none(self):
        many = [
            ("a", n * 10, n * 10 + 10, "failed" if n % 10 == 0 else "done") for n in range(5_000)
        ]
        found = tries(*many).timeline({})
        (lane,) = found.lanes
        assert not found.single and len(lane.segments) < 500
        assert sum(each.attempts for each in lane.segments) == 5_000
        assert sum(each.bad for each in lane.segments) == 500

    def test_workers_that_follow_each_other_share_a_lane_when_there_are_many(self):
        def lane(name, start):
            return Lane(name, (Segment(start, start + 10, "done", 1, 0, 1.0, ""),))

        lanes = [lane(f"{row}.{turn}", turn * 10) for row in range(4) for turn in range(20)]
        packed = packed_lanes(lanes)
        assert len(packed) == 4 and all(len(each.segments) == 20 for each in packed)
        crowd = packed_lanes([lane(str(n), 0) for n in range(100)])
        assert len(crowd) == MAX_LANES

    def test_durations_fall_into_the_right_steps(self):
        made = tries(
            ("a", 0, 0, "done"),
            ("b", 0, 1, "done"),
            ("c", 0, 2, "failed"),
            ("d", 0, 4, "done"),
            ("e", 0, 9_999, "released"),
            ("f", 0, None, None),
        )
        assert [tuple(each) for each in made.histogram()] == [
            (0, 1, 1, 0),
            (1, 2, 1, 0),
            (2, 5, 1, 1),
        ]


class TestPage:
    def test_hostile_text_stays_text_everywhere(self, hv):
        name = "x<script>alert(0)</script>"
        batch = Batch(hv, [HOSTILE, f"{HOSTILE} 2", "fine"], name)
        hv.store.declare_chunks(batch.id, [HOSTILE], "each")
        for event, result in (
            ("fail", None),
            ("complete", {"category": HOSTILE, "summary": HOSTILE, "actions": [{"do": HOSTILE}]}),
        ):
            (lease,) = batch.claim(0)
            batch.end(lease, event, 10, result, HOSTILE, BAD.encode("utf-8", "surrogatepass"))
        hv.store.append(lease.task.id, HOSTILE, [HOSTILE], NOW)
        found = report(hv, name, NOW + 20)
        text = page(found, plain(found))
        elements = Elements(text)

        assert elements.tags.count("script") == 2 and elements.tags.count("style") == 1
        assert not {"img", "iframe", "object", "link", "a", "form"} & set(elements.tags)
        names = {attribute for _, attribute, _ in elements.attributes}
        assert not [each for each in names if each.startswith("on")]
        assert not {"src", "href", "style"} & names
        assert "onerror=alert(2)" in "".join(elements.text)  # there, as text
        control = r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
        assert not re.search(control, text)
        assert "\\u202e" in text
        text.encode()  # no half of a surrogate pair

    def test_the_policy_allows_our_own_style_and_script_and_nothing_else(self, hv):
        Batch(hv, ["a"])
        text = page(report(hv, "b", NOW))
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        for tag, name in (("style", "style-src"), ("script", "script-src")):
            (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            assert f"{name} {source_hash(inner)}" in policy
        assert text.index("Content-Security-Policy") < text.index("<style>")
        assert not re.search(r"https?:|url\(|@import", text)

    def test_failures_come_before_charts_and_receipts_last(self, hv):
        batch = Batch(hv, ["good", "bad"])
        for event in ("complete", "fail"):
            (lease,) = batch.claim(0)
            batch.end(lease, event, 10, receipts=("seen",))
        heads = re.findall(r"<h2>(.*?)</h2>", page(report(hv, "b", NOW)), re.DOTALL)
        names = [re.sub(r"[^a-z ]", "", head.lower()).strip() for head in heads]
        order = ["did not succeed", "workers over time", "tasks", "receipts"]
        assert [name for name in names if name in order] == order, names

    def test_values_stay_in_line_where_a_label_wraps(self, hv):
        Batch(hv, ["a"])
        (rule,) = re.findall(r"\.figures div \{(.*?)\}", page(report(hv, "b", NOW)))
        assert "justify-content: flex-end" in rule

    @pytest.mark.parametrize("cost, shown", [(0.0042, "0.0042 USD"), (1234.5, "1,234.50 USD")])
    def test_a_cost_has_its_currency_and_is_not_rounded_to_nothing(self, hv, cost, shown):
        Batch(hv, ["a"])
        assert shown in page(report(hv, "b", NOW)._replace(cost=cost))

    def test_the_figures_in_the_page_are_the_figures(self, hv):
        batch = Batch(hv, [f"{HOSTILE}\u2028"])
        batch.end(batch.claim(0)[0], "complete", 10)
        found = report(hv, "b", NOW)
        text = page(found, plain(found))
        (block,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
        assert json.loads(block) == json.loads(json.dumps(plain(found)))
        assert not set("<>&'\u2028") & set(block)

    def test_ten_thousand_tasks_with_a_thousand_failures_stay_small(self, hv):
        batch = Batch(hv, [f"task {n} {'<x>' * 60}" for n in range(10_000)])
        for turn in range(100):
            leases = batch.claim(turn * 1_000, by=turn % 7, limit=100)
            verdicts = [
                AttemptResult(
                    parse_token(lease.token),
                    "fail" if turn % 10 == 0 else "complete",
                    reason=f"reason {turn} " + "<&>" * 100,
                )
                for lease in leases
            ]
            hv.store.settle(verdicts, NOW + turn * 1_000 + 900)
        found = report(hv, "b", NOW + 200_000)
        assert (found.total, found.bad, found.attempts) == (10_000, 1_000, 10_000)
        assert len(found.failures) == MAX_FAILURES and len(found.tasks) == MAX_BAD
        text = page(found, plain(found))
        assert len(text.encode()) < 5 << 20
        assert "And 940 more." in text

    def test_it_is_written_at_one_stroke_where_the_batch_has_its_files(self, hv, tmp_path):
        Batch(hv, ["a"], "b/../c")
        path = write(hv, report(hv, "b/../c", NOW))
        assert path.startswith(str(tmp_path / "batches")) and path.endswith("/report.html")
        again = write(hv, report(hv, "b/../c", NOW))
        assert again == path
        assert [each.name for each in (tmp_path / "batches").glob("*/*")] == ["report.html"]
