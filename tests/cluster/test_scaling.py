"""Which nodes get a supervisor, which are let go, and what is asked for."""

from hypervisor.cluster.scaling import MAX_BUNDLES, IdleClock, Need, View, bundles, steps

NONE: frozenset[str] = frozenset()
WORK = (Need(2, 1.0),)
MINUTE = 60_000


def view(nodes="", kept="", working="", needs=()):
    return View(frozenset(nodes), frozenset(kept), frozenset(working), needs)


def test_every_node_gets_a_supervisor_and_lost_nodes_are_forgotten():
    assert steps(view("abc", "bd"), {}, None) == (("a", "c"), (), ("d",))


def test_without_a_limit_no_host_is_let_go():
    clock, idle = IdleClock(), view("a", "a")
    clock.idle_for(idle, 0)
    assert steps(idle, clock.idle_for(idle, 10**9), None).let_go == ()


class TestIdleLimit:
    def test_a_host_is_started_for_work_only(self):
        assert steps(view("ab"), {}, MINUTE).start == ()
        assert steps(view("ab", needs=WORK), {}, MINUTE).start == ("a", "b")

    def test_an_idle_host_is_let_go_after_the_limit_and_not_before(self):
        clock, now = IdleClock(), view("ab", "ab", "b")
        clock.idle_for(now, 0)
        assert steps(now, clock.idle_for(now, MINUTE - 1), MINUTE).let_go == ()
        assert steps(now, clock.idle_for(now, MINUTE), MINUTE).let_go == ("a",)

    def test_work_starts_the_count_again(self):
        clock = IdleClock()
        clock.idle_for(view("a", "a"), 0)
        clock.idle_for(view("a", "a", needs=WORK), MINUTE - 1)
        assert clock.idle_for(view("a", "a"), MINUTE) == {"a": 0}


class TestBundles:
    def test_one_for_each_task_with_what_it_needs(self):
        resources, labels = bundles([Need(2, 0.25, 500), Need(1, 1.0, 0, ("gpu",))])
        assert resources == [{"CPU": 0.25, "memory": 500}] * 2 + [{"CPU": 1.0}]
        assert labels == [{}, {}, {"gpu": "true"}]

    def test_a_full_queue_asks_for_a_bounded_number(self):
        resources, labels = bundles([Need(10**6, 1.0), Need(5, 1.0)])
        assert len(resources) == len(labels) == MAX_BUNDLES

    def test_without_needs_the_request_is_withdrawn(self):
        assert bundles([]) == ([], [])
