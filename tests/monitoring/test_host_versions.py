"""Which host differs from the others."""

from hypervisor.monitoring.host_versions import differences

SAME = {"python": "3.11.7", "hypervisor": "0.4.0"}


def test_hosts_with_the_same_versions_do_not_differ():
    assert differences({"a": SAME, "b": SAME}) == {}


def test_a_patch_release_of_python_makes_no_difference_a_minor_one_does():
    assert differences({"a": SAME, "b": {**SAME, "python": "3.11.9"}}) == {}
    other = {**SAME, "python": "3.12.1"}
    assert differences({"a": SAME, "b": SAME, "c": other}) == {"c": ("python 3.12.1, others 3.11",)}


def test_the_most_common_version_is_the_usual_one_and_of_two_the_first():
    new = {**SAME, "hypervisor": "0.5.0"}
    assert set(differences({"a": new, "b": SAME, "c": SAME})) == {"a"}
    assert set(differences({"a": SAME, "b": new})) == {"b"}


def test_a_program_is_compared_where_it_is_installed():
    assert differences({"a": {**SAME, "ray": "2.60.0"}, "b": SAME}) == {}
    differing = differences({"a": {"ray": "2.60.0"}, "b": {"ray": "2.59.1"}, "c": {}})
    assert differing == {"b": ("ray 2.59.1, others 2.60.0",)}
