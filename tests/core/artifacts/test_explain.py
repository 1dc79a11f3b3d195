from core.artifacts.explain import ABSENT, Difference, differences, explain
from core.artifacts.record import Provenance, Record

BASE = {
    "task": "update",
    "version": "1",
    "spec": {"loss": {"divergence": "reverse_kl", "top_k": 8}, "steps": 3},
    "parents": {"student": "a" * 64},
}


def record(payload, started="2026-01-01T00:00:00+00:00", key="0" * 16):
    return Record(
        kind="students",
        name="toy",
        task="update",
        version="1",
        key=key,
        payload=payload,
        files={},
        digest="0" * 64,
        provenance=Provenance(python="3", started=started, wall_time_s=0.0),
    )


def changed(**spec):
    return {**BASE, "spec": {**BASE["spec"], **spec}}


def test_fields_are_compared_by_dotted_name():
    there = {
        "task": "update",
        "version": "2",
        "spec": {"loss": {"divergence": "forward_kl", "weight": 0.5}, "steps": 3},
        "parents": {"student": "b" * 64},
    }
    assert differences(BASE, there) == [
        Difference("parents.student", "a" * 64, "b" * 64),
        Difference("spec.loss.divergence", "reverse_kl", "forward_kl"),
        Difference("spec.loss.top_k", 8, ABSENT),
        Difference("spec.loss.weight", ABSENT, 0.5),
        Difference("version", "1", "2"),
    ]


def test_equal_payloads_do_not_differ_and_types_do():
    assert differences(BASE, BASE) == []
    assert differences({"x": 1}, {"x": 1.0}) == [Difference("x", 1, 1.0)]
    assert differences({"x": True}, {"x": 1}) == [Difference("x", True, 1)]


def test_a_list_is_one_leaf():
    assert differences({"x": [1, 2, 3]}, {"x": [3, 2]}) == [Difference("x", [1, 2, 3], [3, 2])]


def test_an_empty_section_is_the_same_as_none():
    assert differences({"x": {}}, {}) == []


def test_the_nearest_sibling_has_the_fewest_differences():
    near = record(changed(steps=4), key="1" * 16)
    far = record(changed(steps=4, loss={}), started="2026-02-01T00:00:00+00:00")
    found = explain(BASE, [far, near])
    assert found.sibling == near
    assert found.differences == [Difference("spec.steps", 3, 4)]


def test_among_equals_the_newest_is_nearest():
    old = record(changed(steps=4), started="2026-01-01T00:00:00+00:00")
    new = record(changed(steps=5), started="2026-01-02T00:00:00+00:00")
    assert explain(BASE, [old, new]).sibling == new
    assert explain(BASE, [new, old]).sibling == new


def test_without_siblings_there_is_nothing_to_compare():
    assert explain(BASE, []) == (None, [])


def test_what_was_built_before_does_not_differ():
    assert explain(BASE, [record(BASE)]).differences == []
