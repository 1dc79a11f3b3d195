from core.recipe.validation import RULES, combinations


def test_sound_recipe_has_no_problem(accepted):
    loaded = accepted()
    assert combinations(loaded.recipe, loaded.runtime) == []


def test_each_rule_is_listed_once_and_explained():
    assert len(set(RULES)) == len(RULES) == 31
    assert all(rule.__doc__ for rule in RULES)


def test_broken_rules_are_reported_together(refused):
    error = refused("rollout.max_total_tokens=32", "eval.tasks=99", "train.rollouts_per_cycle=9")
    for key in ("rollout.max_total_tokens", "eval.tasks", "train.rollouts_per_cycle"):
        assert f"{key} = " in error.message
    assert error.hint == "Correct these 3 keys and run the command again."
