import logging

import pytest
import torch

from core.recipe.runtime import Runtime
from core.teacher.independence import measured
from core.teacher.physical import ScoringShape

MODES = ("bucketed_topk_tail", "exact_full_vocab", "verl_pg_k1")


@pytest.fixture
def spec_of(specs_of):
    return lambda mode: specs_of(f"loss.mode={mode}", "loss.aggregation=token-mean")[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_rows_of_the_toy_are_independent_here(small_toy, spec_of, mode, rows):
    shape = ScoringShape(rows, 64, 64)
    found = measured(small_toy(2), shape, spec_of(mode))
    assert found.independent
    again = measured(small_toy(2), shape, spec_of(mode))
    assert found == again
    assert measured(small_toy(3), shape, spec_of(mode)).fingerprint != found.fingerprint


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leak", ["company", "place", "future"])
def test_any_dependence_is_found_and_said(small_toy, spec_of, caplog, mode, leak):
    teacher = small_toy(2)
    hidden_states = teacher.hidden_states

    def leaking(token_ids_BT, lengths_B):
        hidden_BTH = hidden_states(token_ids_BT, lengths_B)
        extra = {
            "company": token_ids_BT.sum(0, keepdim=True),
            "place": torch.arange(len(token_ids_BT))[:, None],
            "future": token_ids_BT.flip(1).cumsum(1).flip(1),
        }[leak]
        return hidden_BTH * (1 + 1e-3 * extra[..., None])

    teacher.hidden_states = leaking
    with caplog.at_level(logging.WARNING):
        found = measured(teacher, ScoringShape(4, 64, 64), spec_of(mode))
    assert not found.independent
    assert "depend on its batch" in caplog.text


def test_the_check_runs_once_per_model_and_shape(small_toy, spec_of):
    teacher, calls = small_toy(2), []
    hidden_states = teacher.hidden_states
    teacher.hidden_states = lambda *given: calls.append(1) or hidden_states(*given)
    shape = ScoringShape.of(teacher, Runtime(), 30)
    for _ in range(3):
        measured(teacher, shape, spec_of("bucketed_topk_tail"))
    assert len(calls) == 2
