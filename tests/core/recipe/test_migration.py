def test_old_weight_of_a_supervised_run_is_renamed(accepted):
    recipe = accepted("run.mode=sft", "loss.ce_weight=1").recipe
    assert recipe.loss.sampled_token_nll_weight == 1


def test_old_weight_of_zero_means_nothing(accepted):
    assert accepted("loss.ce_weight=0").recipe.loss.sampled_token_nll_weight == 0


def test_old_weight_in_a_distillation_run_is_refused(refused):
    error = refused("loss.ce_weight=0.5")
    assert "loss.ce_weight = 0.5: is ambiguous in a distillation run" in error.message
    assert "loss.sampled_token_nll_weight" in error.hint


def test_both_weights_in_a_supervised_run_are_refused(refused):
    error = refused("run.mode=sft", "loss.ce_weight=1", "loss.sampled_token_nll_weight=1")
    assert "loss.ce_weight = 1" in error.message


def test_renamed_key_is_still_called_by_its_old_name(refused):
    error = refused("run.mode=sft", "loss.ce_weight=3")
    assert "loss.ce_weight = 3: must be at most 1" in error.message
