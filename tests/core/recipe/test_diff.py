from hypothesis import given
from hypothesis import strategies as st

from core.recipe.diff import Difference, structured_diff
from core.recipe.steps import update_spec

TREES = st.recursive(
    st.none() | st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def test_differing_leaves_are_listed_in_order(accepted):
    left = accepted().recipe
    right = accepted("loss.top_k=3", "run.seed=9", "models.student.lora.target_modules=[x]").recipe
    rows = structured_diff(left, right)
    assert [row.path for row in rows] == [
        "run.seed",
        "models.student.lora.target_modules",
        "loss.top_k",
    ]
    assert (rows[0].left, rows[0].right) == (1234, 9)
    assert rows[1].right == ["x"]


def test_absent_section_is_compared_key_by_key(accepted):
    left = accepted().recipe
    right = accepted("cold_start.cycles=3", "cold_start.learning_rate=0.1").recipe
    rows = structured_diff(left, right)
    assert rows[0] == Difference("cold_start.cycles", None, 3)
    assert [row.path for row in rows][1:] == [
        "cold_start.learning_rate",
        "cold_start.lr_schedule",
        "cold_start.warmup_steps",
    ]


def test_specs_can_be_compared(accepted):
    left, right = (update_spec(accepted(f"run.seed={seed}").recipe, 0) for seed in (1, 2))
    assert structured_diff(left, right) == [Difference("run_seed", 1, 2)]


def test_section_against_value_is_one_row():
    assert structured_diff({"a": {"b": 1}}, {"a": 2}) == [Difference("a", {"b": 1}, 2)]


@given(st.dictionaries(st.sampled_from("abc"), TREES))
def test_nothing_differs_from_itself(tree):
    assert structured_diff(tree, tree) == []


@given(
    st.dictionaries(st.sampled_from("abc"), TREES), st.dictionaries(st.sampled_from("abc"), TREES)
)
def test_sides_can_be_exchanged(left, right):
    forward = {(row.path, str(row.left), str(row.right)) for row in structured_diff(left, right)}
    back = {(row.path, str(row.right), str(row.left)) for row in structured_diff(right, left)}
    assert forward == back
