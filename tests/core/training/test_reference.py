"""The divergence from a reference is exact, and nothing is trained on it."""

import pytest
import torch

from core.errors import NumericsError
from core.recipe.runtime import Runtime
from core.training.memory import ChunkSize
from core.training.reference import COLUMN, reference_column
from core.training.update import paired_examples, update

PARTS = [("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3)]


@pytest.fixture
def episodes(write_episode):
    return [
        write_episode([*PARTS, ("assistant_final", 2 + 3 * n)], n, trajectory_id=f"t{n}")
        for n in range(3)
    ]


@pytest.fixture
def examples(scored_by, small_toy, episodes):
    scored, _, _ = scored_by(small_toy(2), episodes)
    return paired_examples(episodes, scored)


def measured(student, reference, examples, *, chunk=256, rows=8):
    runtime = Runtime(chunk_size=chunk, trajectory_batch_size=rows)
    return reference_column(student, reference, examples, runtime, ChunkSize(chunk, 3, 1))


@torch.no_grad()
def brute_force(student, reference, examples):
    """Mean of Σ q (log q − log p), one episode and one position at a time."""
    terms = []
    for example in examples:
        ids_1T, length_1 = torch.tensor([example.token_ids]), torch.tensor([len(example.token_ids)])
        first_TV, second_TV = (
            model.project(model.hidden_states(ids_1T, length_1)[0]).double().log_softmax(-1)
            for model in (student, reference)
        )
        for position in example.prediction_positions:
            q_V, p_V = first_TV[position], second_TV[position]
            terms.append(float(torch.sum(q_V.exp() * (q_V - p_V))))
    return sum(terms) / len(terms)


def test_it_is_the_mean_of_every_position_s_sum_over_the_vocabulary(small_toy, examples):
    student, reference = (small_toy(seed, dtype=torch.float64) for seed in (1, 3))
    found = measured(student, reference, examples)[COLUMN]
    assert found == pytest.approx(brute_force(student, reference, examples), rel=1e-12)
    assert found > 0.1


def test_a_student_that_is_its_reference_is_nowhere_else(small_toy, examples):
    assert measured(small_toy(1), small_toy(1), examples) == {COLUMN: 0.0}


def test_a_small_divergence_is_not_lost_in_rounding(small_toy, examples):
    student, reference = small_toy(1), small_toy(1)
    with torch.no_grad():
        student.parameters["norm"] *= 1.0001
    found = measured(student, reference, examples)[COLUMN]
    assert 0.0 < found < 1e-6
    assert found == pytest.approx(brute_force(student, reference, examples), rel=1e-2)


@pytest.mark.parametrize(("chunk", "rows"), [(1, 8), (2, 1), (3, 2)])
def test_physical_sizes_change_rounding_only(small_toy, examples, chunk, rows):
    whole = measured(small_toy(1), small_toy(3), examples)[COLUMN]
    split = measured(small_toy(1), small_toy(3), examples, chunk=chunk, rows=rows)[COLUMN]
    assert split == pytest.approx(whole, rel=1e-5)


def test_each_position_counts_once_whatever_its_weight(small_toy, scored_by, episodes):
    heavy, _, _ = scored_by(small_toy(2), episodes, "selection.critical_weight=9")
    plain, _, _ = scored_by(small_toy(2), episodes)
    weighted, even = (paired_examples(episodes, one) for one in (heavy, plain))
    assert weighted != even
    models = small_toy(1), small_toy(3)
    assert measured(*models, weighted) == measured(*models, even)


@pytest.mark.parametrize("overrides", [(), ("loss.mode=exact_full_vocab",)])
def test_training_with_a_reference_has_the_bits_of_training_without(
    small_toy, scored_by, state_of, episodes, overrides
):
    teacher, reference = small_toy(2), small_toy(3)
    before = reference.frozen_digest(), state_of(reference).digest()
    scored, spec, runtime = scored_by(teacher, episodes, *overrides)
    done = []
    for third in (None, reference):
        student = small_toy(1)
        done.append(update(student, state_of(student), episodes, scored, spec, runtime,
                           teacher=teacher, reference=third))  # fmt: skip
    alone, watched = done
    assert watched.state.digest() == alone.state.digest()
    [row], [plain] = watched.rows, alone.rows
    expected = brute_force(small_toy(1), reference, paired_examples(episodes, scored))
    assert row.pop(COLUMN) == pytest.approx(expected, rel=1e-5)
    assert row == plain
    assert (reference.frozen_digest(), state_of(reference).digest()) == before
    assert all(p.grad is None for p in reference.parameters.values())


def test_a_reference_that_says_no_number_takes_no_step(small_toy, scored_by, state_of, episodes):
    student, reference = small_toy(1), small_toy(3)
    with torch.no_grad():
        reference.parameters["norm"].fill_(float("nan"))
    state = state_of(student)
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    with pytest.raises(NumericsError, match="the divergence from the reference is not finite"):
        update(student, state, episodes, scored, spec, runtime, reference=reference)
    assert state_of(student).digest() == state.digest()


def test_a_full_device_halves_the_chunk(small_toy, examples, monkeypatch):
    student, sizes = small_toy(1), []
    whole = measured(small_toy(1), small_toy(3), examples)[COLUMN]
    project = student.project

    def small(hidden_NH):
        sizes.append(len(hidden_NH))
        if len(hidden_NH) > 2:
            raise torch.OutOfMemoryError("full")
        return project(hidden_NH)

    monkeypatch.setattr(student, "project", small)
    found = measured(student, small_toy(3), examples, chunk=8)[COLUMN]
    assert sizes[:2] == [4, 2]
    assert found == pytest.approx(whole, rel=1e-5)
