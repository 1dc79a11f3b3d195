"""Splits and the parameters that every environment has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.environments.base import make_splits
from core.environments.calculator import Calculator
from core.environments.registry import make_environment
from core.errors import InputError


@settings(max_examples=20)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["easy", "medium", "hard"]),
    st.integers(0, 40),
    st.integers(0, 12),
)
def test_no_prompt_occurs_twice(seed, difficulty, num_train, num_eval):
    counts = {"train": num_train, "eval": num_eval, "test": 5}
    splits = make_splits(Calculator(), counts, seed, difficulty)
    assert {name: len(tasks) for name, tasks in splits.items()} == counts
    prompts = [task.prompt for tasks in splits.values() for task in tasks]
    assert len(set(prompts)) == len(prompts)


def test_each_split_has_its_own_range_of_indices():
    splits = make_splits(Calculator(), {"train": 3, "eval": 2, "test": 2}, 7, "hard")
    indices = {
        name: [int(t.task_id.split("-")[2]) for t in tasks] for name, tasks in splits.items()
    }
    assert indices["train"] == [0, 1, 2]
    assert indices["eval"] == [1_000_000, 1_000_001]
    assert indices["test"] == [2_000_000, 2_000_001]
    assert {task.split for task in splits["eval"]} == {"eval"}


def test_a_split_that_is_not_named_is_empty():
    splits = make_splits(Calculator(), {"eval": 1}, 7, "easy")
    assert [len(splits[name]) for name in ("train", "eval", "test")] == [0, 1, 0]


def test_more_tasks_than_prompts_are_refused():
    class Small(Calculator):
        def generate_task(self, index, **facts):
            return super().generate_task(index % 10, **facts)

    assert len(make_splits(Small(), {"train": 10}, 7, "hard")["train"]) == 10
    with pytest.raises(InputError, match="only 0 fresh hard prompts for the eval split, not 1"):
        make_splits(Small(), {"train": 10, "eval": 1}, 7, "hard")


def test_an_unknown_split_is_refused():
    with pytest.raises(InputError, match="split is 'dev'"):
        make_splits(Calculator(), {"dev": 1}, 7, "easy")


@pytest.mark.parametrize("key", ["prompt_style", "protocol_version", "verifier_version"])
def test_an_unknown_choice_is_refused(key):
    with pytest.raises(InputError, match=f"{key} is 'v9'"):
        Calculator(**{key: "v9"})


def test_the_verifier_follows_the_protocol_unless_told_otherwise():
    assert Calculator(protocol_version="v2").verifier_version == "v2"
    assert Calculator(protocol_version="v2", verifier_version="v1").verifier_version == "v1"


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"max_calls_per_turn": 2}, "max_calls_per_turn is 2 in protocol_version 'v1'"),
        ({"max_calls_per_turn": 0, "protocol_version": "v3"}, "max_calls_per_turn is 0"),
        ({"max_calls_per_turn": 17, "protocol_version": "v3"}, "max_calls_per_turn is 17"),
        ({"max_calls_per_turn": True}, "max_calls_per_turn is True"),
        ({"verifier_version": "v3"}, "verifier_version is 'v3'"),
        ({"protocol_version": "v4"}, "protocol_version is 'v4'"),
    ],
)
def test_a_parameter_without_meaning_is_refused(params, reason):
    with pytest.raises(InputError, match=reason):
        make_environment("calculator", **params)


def test_the_protocol_version_decides_grammar_and_verifier():
    made = [make_environment("calculator", protocol_version=v) for v in ("v1", "v2", "v3")]
    assert [world.verifier_version for world in made] == ["v1", "v2", "v2"]
    assert [world.grammar.strict for world in made] == [False, False, True]
    several = make_environment("calculator", protocol_version="v3", max_calls_per_turn=4)
    assert several.grammar.max_calls == 4
