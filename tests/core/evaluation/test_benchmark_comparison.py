import json

import pytest

from core.evaluation.arm_comparison import compare_arms
from core.evaluation.benchmark_comparison import EQUAL, compare_results, mean_interval, scope_words
from core.evaluation.benchmark_results import BenchmarkResults
from core.evaluation.statistics import wilson


def rows(arm, seeds, solved, errors=(), recovered=()):
    """Return a row per seed and task of twelve; a task is named by its number."""
    return [
        {
            **{"arm": arm, "seed": seed, "task_id": f"t{task}", "sample": 0},
            "success": task in solved,
            "had_tool_error": task in errors,
            "recovered_after_tool_error": task in recovered,
        }
        for seed in seeds
        for task in range(12)
    ]


def results(*parts, seeds=(1, 2), identical=(), **changes):
    names = list(dict.fromkeys(row["arm"] for part in parts for row in part))
    document = {
        "arms": [{"name": name} for name in names],
        "seeds": list(seeds),
        "comparisons": [[name, names[0]] for name in names[1:]],
        "identical": [list(group) for group in identical],
        "alpha": 0.05,
        "looks": 1,
    }
    return BenchmarkResults(document | changes, [row for part in parts for row in part])


def test_every_arm_is_compared_with_the_baseline_as_the_statistics_say():
    few, many = range(2), range(11)
    found = compare_results(results(rows("a", (1, 2), few), rows("b", (1, 2), many)))
    (row,) = found["comparisons"]
    values = {
        arm: {seed: {f"t{t}": float(t in solved) for t in range(12)} for seed in (1, 2)}
        for arm, solved in (("a", few), ("b", many))
    }
    (expected,) = compare_arms(values, [("b", "a")], seed=0)
    assert (row["effect"], row["lower"], row["p_value"]) == (
        expected.effect.estimate,
        expected.effect.lower,
        expected.p_value,
    )
    assert (row["wins"], row["losses"], row["ties"]) == (18, 0, 6)
    assert row["verdict"] == "better, for these seeds"
    assert found["confidence"] == 0.95
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_recovery_is_pooled_and_a_mean_of_seeds():
    # Seed 1: five errors, all recovered; seed 2: ten, none recovered. Pooled 1/3, mean 1/2.
    own = rows("a", (1,), (), range(5), range(5)) + rows("a", (2,), (), range(10))
    never = rows("b", (1, 2), (), range(12))
    found = compare_results(results(never, own))
    rate = {one["arm"]: one["recovery"] for one in found["rates"]}
    assert rate["a"]["estimate"] == pytest.approx(1 / 3)
    assert rate["a"]["mean_of_seeds"] == 0.5
    assert (rate["a"]["pairs_with_errors"], rate["a"]["tasks_with_errors"]) == (15, 10)
    (row,) = [one for one in found["comparisons"] if one["measure"] == "recovery"]
    assert row["effect"] == pytest.approx(1 / 3)
    assert row["mean_of_seeds"]["estimate"] == 0.5
    assert (row["wins"], row["losses"], row["ties"]) == (5, 0, 10)


def test_one_task_is_one_task():
    own, never = rows("a", (1, 2), (), {0}, {0}), rows("b", (1, 2), (), {0})
    found = compare_results(results(never, own))["comparisons"]
    (row,) = [one for one in found if one["measure"] == "recovery"]
    assert row["verdict"] == "not compared: 1 task with an error in both, fewer than 10"


def test_recovery_of_few_tasks_is_not_compared_and_its_interval_is_wilsons():
    own, never = rows("a", (1, 2), (), {0, 1}, {0, 1}), rows("b", (1, 2), (), {0, 1})
    found = compare_results(results(never, own))
    (row,) = [one for one in found["comparisons"] if one["measure"] == "recovery"]
    assert row["verdict"] == "not compared: 2 tasks with an error in both, fewer than 10"
    assert "effect" not in row
    (rate,) = [one["recovery"] for one in found["rates"] if one["arm"] == "a"]
    assert (rate["lower"], rate["upper"]) == (wilson(2, 2).lower, 1.0)


def test_a_world_without_errors_has_no_recovery():
    found = compare_results(results(rows("a", (1, 2), ()), rows("b", (1, 2), ())))
    assert [one["measure"] for one in found["comparisons"]] == ["success"]
    assert found["rates"][0]["recovery"] is None


def test_with_one_seed_nothing_is_claimed():
    found = compare_results(results(rows("a", (1,), ()), rows("b", (1,), range(12)), seeds=(1,)))
    assert found["comparisons"][0]["verdict"] == "one seed: no significance is claimed"
    assert found["scope"] == "one seed: no significance is claimed"


@pytest.mark.parametrize(("seeds", "words"), [(4, "for these seeds"), (5, "other seeds and tasks")])
def test_the_scope_depends_on_the_number_of_seeds(seeds, words):
    assert words in scope_words(seeds, seeds)


def test_the_scope_of_what_is_there_so_far_is_that_of_its_seeds():
    """Two of five planned seeds say nothing about other seeds, and that they are two."""
    parts = [rows("a", (1, 2, 3), range(3)), rows("b", (1, 2), range(9))]
    missing = [{"arm": "b", "seed": 3}]
    found = compare_results(results(*parts, seeds=(1, 2, 3, 4, 5), missing=missing))
    assert found["scope"].startswith("2 of 5 seeds so far: intervals and verdicts are for these")
    assert found["error_control"].endswith("when everything has run; of its runs 1 are missing")
    assert scope_words(1, 5) == "1 of 5 seeds so far: no significance is claimed"


def test_arms_that_never_differed_have_an_interval_all_the_same():
    found = compare_results(results(rows("a", (1, 2), ()), rows("b", (1, 2), ())))
    (row,) = found["comparisons"]
    bound = wilson(0, 12).upper
    assert (row["effect"], row["lower"], row["upper"]) == (0.0, -bound, bound)
    assert row["advice"]["words"].startswith("no pair differed from another")


def test_a_difference_of_rates_stays_within_what_rates_can_differ_by():
    all_but_one = [row | {"success": row["task_id"] != "t0"} for row in rows("b", (1,), range(12))]
    most = all_but_one + rows("b", range(2, 6), range(12))
    two = [row for row in most if row["task_id"] in ("t0", "t1")]
    none = [row | {"arm": "a", "success": False} for row in two]
    (found,) = compare_results(results(none, two, seeds=range(1, 6)))["comparisons"]
    assert found["upper"] == 1.0


def test_identical_arms_say_so_and_cost_the_others_nothing():
    parts = [
        rows("a", (1, 2), range(3)),
        rows("b", (1, 2), range(3)),
        rows("c", (1, 2), range(9)),
    ]
    same, other = compare_results(results(*parts, identical=[("a", "b")]))["comparisons"]
    assert (same["verdict"], same["effect"], same["p_value"]) == (EQUAL, 0.0, None)
    (alone,) = compare_results(results(parts[0], parts[2]))["comparisons"]
    assert (other["p_value"], other["decided"]) == (alone["p_value"], alone["decided"])


def test_arms_without_common_seeds_or_tasks_are_not_compared():
    found = compare_results(results(rows("a", (1,), ()), rows("b", (2,), ())))
    assert found["comparisons"][0]["verdict"] == "not compared: no seed has results of both"
    other = [row | {"task_id": f"other-{row['task_id']}"} for row in rows("b", (1, 2), ())]
    found = compare_results(results(rows("a", (1, 2), ()), other))
    assert "same tasks under the same seeds" in found["comparisons"][0]["verdict"]


def test_more_looks_widen_intervals_and_say_what_they_hold():
    parts = [rows("a", (1, 2), range(3)), rows("b", (1, 2), range(9))]
    once, often = (compare_results(results(*parts, looks=looks)) for looks in (1, 10))
    width = [
        one["comparisons"][0]["upper"] - one["comparisons"][0]["lower"] for one in (once, often)
    ]
    assert width[1] > width[0]
    assert often["confidence"] == pytest.approx(0.995)
    assert "over 10 looks: each look spends 0.005 (Bonferroni)" in often["error_control"]
    assert "looked at once" in once["error_control"]


def test_a_rate_of_nothing_has_wilsons_interval_over_tasks():
    nothing = {seed: {f"t{task}": 0.0 for task in range(12)} for seed in (1, 2)}
    found = mean_interval(nothing, 0.95)
    assert (found.lower, found.upper) == (0.0, wilson(0, 12).upper)


@pytest.mark.parametrize("tasks", [7, 12, 48, 96])
def test_a_rate_of_everything_has_it_too_although_sums_round(tasks):
    values = {seed: {f"t{task:02d}": 1.0 for task in range(tasks)} for seed in (1, 2)}
    found, exact = mean_interval(values, 0.95), wilson(tasks, tasks)
    assert (found.lower, found.upper) == (exact.lower, exact.upper)


def test_an_undecided_comparison_says_what_would_decide_it():
    found = compare_results(results(rows("a", (1, 2), range(5)), rows("b", (1, 2), range(6))))
    (row,) = found["comparisons"]
    assert row["verdict"] == "undecided"
    assert row["advice"]["words"].startswith("for other seeds, too, differences below")
    assert (
        f"{row['advice']['tasks_needed']} tasks in all with these 2 seeds" in row["advice"]["words"]
    )


def test_without_results_there_is_nothing_to_compare():
    found = compare_results(results(comparisons=[["b", "a"]]))
    assert found["rates"] == []
    assert found["comparisons"][0]["verdict"].startswith("not compared")


def test_seeds_that_differ_widely_leave_a_rate_within_what_a_rate_can_be():
    # Shares of one benchmark's five seeds: Student's interval alone would be 18 to 102 %.
    shares = (0.99, 0.958, 0.323, 0.448, 0.312)
    values = {
        seed: {f"t{t}": float(t < share * 96) for t in range(96)}
        for seed, share in enumerate(shares)
    }
    found = mean_interval(values, 0.95)
    assert 0.0 < found.lower < 0.3
    assert found.upper == 1.0
