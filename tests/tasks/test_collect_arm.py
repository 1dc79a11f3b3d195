from tasks.collect_arm import spent_by

UPDATES = [[{"selected_positions": 3}, {"selected_positions": 4}], [{"selected_positions": 5}]]
FRESH = {
    "rollouts_0000": {"generated_tokens": 10, "rollouts": 2},
    "rollouts_0001": {"generated_tokens": 20, "rollouts": 2},
}
FROZEN = {"dataset": {"generated_tokens": 40, "rollouts": 8}}


def test_a_point_of_a_curve_says_what_was_spent_until_then():
    assert spent_by("evaluation_0002", UPDATES, FRESH) == {
        "optimizer_steps": 2,
        "selected_tokens": 7,
        "generated_tokens": 10,
    }
    assert spent_by("evaluation_0003", UPDATES, FRESH) == {
        "optimizer_steps": 3,
        "selected_tokens": 12,
        "generated_tokens": 30,
    }


def test_before_and_after_the_cold_start_nothing_was_spent():
    for evaluation in ("evaluation_0000", "evaluation_0001"):
        assert set(spent_by(evaluation, UPDATES, FRESH | FROZEN).values()) == {0}


def test_a_frozen_data_set_is_paid_for_before_the_first_update():
    assert spent_by("evaluation_0002", UPDATES, FROZEN)["generated_tokens"] == 40
