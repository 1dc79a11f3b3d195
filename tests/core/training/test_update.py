import math

import pytest
import torch

from core.errors import (
    AlignmentError,
    BackendError,
    InputError,
    NumericsError,
    StalePolicyError,
)
from core.models.tensor_files import tensors_digest
from core.training import group
from core.training.state import load_state
from core.training.update import update

PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 3), ("assistant_final", 2)]
VERDICT = {"solved": False, "reward": 0.0, "failure_category": "wrong_answer"}
TOKEN_MEAN = "loss.aggregation=token-mean"
TOP_K = ("loss.divergence=forward_kl", "loss.scale_by_temperature_squared=false", TOKEN_MEAN)


@pytest.fixture
def train(small_toy, scored_by, state_of):
    """Return f(episodes, overrides): an update of toy 1 by toy 2, and the state before it."""

    def run(episodes, *overrides, **sizes):
        student, teacher = small_toy(1), small_toy(2)
        before = state_of(student)
        scored, spec, runtime = scored_by(teacher, episodes, *overrides, **sizes)
        done = update(student, before, episodes, scored, spec, runtime, teacher=teacher)
        return done, before

    return run


def test_the_length_of_an_answer_that_is_not_trained_changes_no_gradient(train, write_episode):
    """C01: rollouts are the same; what the data set holds besides has 2 or 40 words."""
    norms = []
    for words in (2, 40):
        answer = {**VERDICT, "expected": " ".join(["word"] * words)}
        episodes = [write_episode(TWO_TURNS, n, trajectory_id=f"t{n}", verification=answer)
                    for n in range(3)]  # fmt: skip
        done, _ = train(episodes)
        norms.append((done.rows[0]["loss"], done.rows[0]["grad_norm"]))
    assert norms[0] == norms[1]
    assert norms[0][1] > 0.0


def test_a_step_moves_the_student_and_says_what_it_did(train, write_episode):
    done, before = train([write_episode(TWO_TURNS)], "loss.top_k=5", "loss.temperature=2")
    [row] = done.rows
    assert row["parameter_version"] == done.state.counters.parameter_version == 1
    assert row["selected_positions"] == 4
    assert math.isfinite(row["loss"])
    assert any(not torch.equal(done.state.tensors[name], t) for name, t in before.tensors.items())
    temperatures = [row[f"{name}_temperature"] for name in ("sampling", "loss", "teacher")]
    assert temperatures == [1.0, 2.0, 2.0]
    assert 0.0 < row["objective_diagnostics"]["student_mass"] < 1.0
    assert [token["target_position"] for token in done.token_rows] == [7, 8, 12, 13]


def test_the_rows_of_a_policy_gradient_say_how_much_was_clipped(train, write_episode):
    """The sampler here was another model, so every ratio is far from one."""
    done, _ = train([write_episode(TWO_TURNS)], "loss.mode=verl_pg_k1", TOKEN_MEAN)
    found = done.rows[0]["objective_diagnostics"]
    assert set(found) == {"is_clipped", "is_clipped_below", "approx_kl", "k1"}
    assert 0.0 <= found["is_clipped"] <= 1.0
    assert done.token_rows[0]["teacher_top_token"] is None
    assert math.isfinite(done.token_rows[0]["teacher_sampled_token_log_prob"])


def test_the_rows_of_verl_s_top_k_say_where_the_gradient_was_lost(train, write_episode):
    """C28: a negative sum is clamped; verl users saw it in 415 of 467 steps."""
    done, _ = train([write_episode(TWO_TURNS)], "loss.mode=forward_kl_topk", *TOP_K, "loss.top_k=3")
    found = done.rows[0]["objective_diagnostics"]
    assert 0.0 <= found["clamped"] <= 1.0
    assert found["teacher_mass"] < 1.0
    assert found["overlap_count"] <= 3.0


@pytest.mark.parametrize("batch_size", [1, 2])
def test_physical_batches_change_no_bit_of_the_counters_and_little_of_the_weights(
    train, write_episode, batch_size
):
    episodes = [
        write_episode([*PROMPT, ("assistant_text", 1 + 4 * n)], n, trajectory_id=f"t{n}")
        for n in range(4)
    ]
    whole, _ = train(episodes, batch_size=4)
    split, _ = train(episodes, batch_size=batch_size)
    assert split.state.counters == whole.state.counters
    assert split.rows[0]["loss"] == pytest.approx(whole.rows[0]["loss"], rel=1e-5)
    assert split.rows[0]["grad_norm"] == pytest.approx(whole.rows[0]["grad_norm"], rel=1e-4)


def test_a_selection_without_a_token_takes_no_step(train, write_episode):
    done, before = train([write_episode([*PROMPT, ("assistant_text", 3)])],
                         "selection.selector=tool_and_final")  # fmt: skip
    assert done.rows == []
    assert done.state.digest() == before.digest()


def test_modes_that_share_targets_read_each_other_s(small_toy, scored_by, write_episode, state_of):
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(TWO_TURNS)]
    scored, _, runtime = scored_by(teacher, episodes, "loss.mode=exact_full_vocab")
    _, spec, _ = scored_by(teacher, episodes, "loss.mode=union_topk", "loss.top_k=4")
    done = update(student, state_of(student), episodes, scored, spec, runtime, teacher=teacher)
    assert done.rows[0]["objective_diagnostics"].keys() == {"student_mass", "teacher_mass"}


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("scored_with", "trained_with", "message"),
    [
        ("loss.mode=exact_full_vocab", "loss.mode=bucketed_topk_tail", "the targets are exact"),
        ("loss.mode=bucketed_topk_tail", "loss.mode=union_topk", "the loss is union_topk"),
        ("loss.teacher_temperature=0.5", "loss.temperature=1", r"taken at temperature 0\.5"),
    ],
)
def test_targets_that_the_loss_cannot_read_are_refused(
    small_toy, scored_by, write_episode, state_of, scored_with, trained_with, message
):  # fmt: skip
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(TWO_TURNS)]
    scored, _, runtime = scored_by(teacher, episodes, scored_with)
    _, spec, _ = scored_by(teacher, episodes, trained_with)
    with pytest.raises(BackendError, match=message):
        update(student, state_of(student), episodes, scored, spec, runtime, teacher=teacher)


@pytest.mark.parametrize("mode", ["exact_full_vocab", "union_topk"])
def test_a_whole_distribution_needs_the_teacher_s_head(
    small_toy, scored_by, write_episode, state_of, mode
):
    student, episodes = small_toy(1), [write_episode(TWO_TURNS)]
    scored, spec, runtime = scored_by(small_toy(2), episodes, f"loss.mode={mode}")
    with pytest.raises(BackendError, match="head is not loaded"):
        update(student, state_of(student), episodes, scored, spec, runtime)


def test_targets_of_other_tokens_are_refused(small_toy, scored_by, write_episode, state_of):
    student = small_toy(1)
    scored, spec, runtime = scored_by(small_toy(2), [write_episode(TWO_TURNS)])
    with pytest.raises(AlignmentError, match="do not fit"):
        update(student, state_of(student), [write_episode(TWO_TURNS, 9)], scored, spec, runtime)
    with pytest.raises(AlignmentError, match="2 trajectories but targets for 1"):
        update(student, state_of(student), [write_episode(TWO_TURNS)] * 2, scored, spec, runtime)


def test_stale_episodes_are_refused(small_toy, scored_by, write_episode, state_of):
    student, episodes = small_toy(1), [write_episode(TWO_TURNS, policy_version=3)]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    with pytest.raises(StalePolicyError, match="at version 0, but episodes or targets are of"):
        update(student, state_of(student), episodes, scored, spec, runtime)
    with pytest.raises(InputError, match="no trajectories"):
        update(student, state_of(student), [], scored, spec, runtime)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (math.nan, r"optimizer step 0: .* \(assistant_\w+\) of broken"),
        (math.inf, "optimizer step 0: the loss refuses its input, in one of broken"),
    ],
)
def test_a_loss_that_is_not_finite_commits_nothing(
    small_toy, scored_by, write_episode, state_of, monkeypatch, factor, message
):
    student, episodes = small_toy(1), [write_episode(TWO_TURNS, trajectory_id="broken")]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    before = state_of(student)
    digest = before.digest()
    project = student.project
    monkeypatch.setattr(student, "project", lambda hidden_NH: project(hidden_NH) * factor)
    with pytest.raises(NumericsError, match=message):
        update(student, before, episodes, scored, spec, runtime)
    assert before.digest() == tensors_digest(student.trainable()) == digest
    assert all(parameter.grad is None for parameter in student.trainable().values())


# ---------------------------------------------------------------- end to end


def cycle(student, state, run, number, write_episode, scored_by):
    """Sample nothing: write the episodes of a cycle, score them and update."""
    version = state.counters.parameter_version
    episodes = [
        write_episode(TWO_TURNS, 10 * number + n, trajectory_id=f"t{n}", policy_version=version)
        for n in range(4)
    ]
    scored, spec, runtime = scored_by(run["teacher"], episodes, *run["overrides"])
    spec = spec.model_copy(
        update={
            "cycle": number,
            "schedule": spec.schedule.model_copy(update={"first_step": number}),
        }
    )
    return update(student, state, episodes, scored, spec, runtime).state


def test_a_run_that_was_cut_ends_in_the_same_bits(
    small_toy, scored_by, write_episode, state_of, tmp_path
):
    run = {"teacher": small_toy(2), "overrides": ("train.learning_rate=0.01", "train.cycles=4")}
    student = small_toy(1)
    state = state_of(student)
    for number in range(4):
        state = cycle(student, state, run, number, write_episode, scored_by)

    student = small_toy(1)
    cut = state_of(student)
    for number in range(2):
        cut = cycle(student, cut, run, number, write_episode, scored_by)
    cut.save(tmp_path)
    another = small_toy(5)  # as in a new process: other weights lie in memory
    resumed = load_state(tmp_path)
    for number in range(2, 4):
        resumed = cycle(another, resumed, run, number, write_episode, scored_by)

    assert resumed.digest() == state.digest()
    assert resumed.counters == state.counters
    for name, moment in state.moments.tensors["exp_avg_sq"].items():
        assert torch.equal(resumed.moments.tensors["exp_avg_sq"][name], moment)
    assert (state.counters.cycle, state.moments.step, state.counters.selected_tokens_spent) == (
        4, 4, 64,
    )  # fmt: skip


def test_a_retry_applies_the_update_once(small_toy, scored_by, write_episode, state_of):
    student, episodes = small_toy(1), [write_episode(TWO_TURNS)]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    before = state_of(student)
    digests = {
        update(student, before, episodes, scored, spec, runtime).state.digest() for _ in range(3)
    }
    assert len(digests) == 1
    assert digests != {before.digest()}


def fail_once(monkeypatch, owner, name, error):
    """Let a function do its work and then raise, the first time only."""
    plain = getattr(owner, name)

    def failing(*arguments, **options):
        monkeypatch.setattr(owner, name, plain)
        plain(*arguments, **options)
        raise error

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    "cut",
    [
        (torch.optim.AdamW, "step", torch.OutOfMemoryError("full")),
        (group, "_backward_batch", KeyboardInterrupt()),
    ],
    ids=["the device is full in the step", "control-c after a backward pass"],
)
def test_a_second_attempt_in_the_same_process_gives_the_undisturbed_bits(
    small_toy, scored_by, write_episode, state_of, monkeypatch, cut
):
    """C83: a retry starts from the committed state and applies the step once."""
    student, episodes = small_toy(1), [write_episode(TWO_TURNS)]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    before = state_of(student)
    undisturbed = update(small_toy(1), before, episodes, scored, spec, runtime)
    fail_once(monkeypatch, *cut)
    with pytest.raises(type(cut[-1])):
        update(student, before, episodes, scored, spec, runtime)
    assert tensors_digest(student.trainable()) == before.digest()
    assert all(parameter.grad is None for parameter in student.trainable().values())
    again = update(student, before, episodes, scored, spec, runtime)
    assert again.state.digest() == undisturbed.state.digest()
    assert again.rows == undisturbed.rows


def test_replay_takes_a_step_per_group_on_its_schedule(train, write_episode):
    episodes = [write_episode(TWO_TURNS, n, trajectory_id=f"t{n}") for n in range(5)]
    fresh = ("train.rollouts_per_cycle=5", "train.gradient_accumulation_steps=2")
    done, _ = train(episodes, *fresh, "train.opd_freshness=replay", "train.lr_schedule=linear")
    assert [row["trajectories_in_step"] for row in done.rows] == [2, 2, 1]
    assert [row["parameter_version"] for row in done.rows] == [1, 2, 3]
    assert {row["phase"] for row in done.rows} == {"online_distillation_with_replay"}
    assert done.rows[0]["lr"] > done.rows[1]["lr"] > done.rows[2]["lr"]
    assert done.state.counters.rollout_policy_version == 0
