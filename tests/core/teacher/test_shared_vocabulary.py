from types import SimpleNamespace

import pytest
import torch

from core.errors import AlignmentError, TokenizerMismatchError
from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES
from core.losses.targets import SharedTargets
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher.shared_vocabulary import score_shared
from core.teacher.targets import load_targets
from core.training.canaries import check_canaries
from core.training.state import initial_state
from core.training.token_analysis import favourites
from core.training.update import group_targets, objective_of, paired_examples, update
from core.trajectory.byte_alignment import align_bytes
from core.trajectory.vocabulary import shared_vocabulary

CODEC, OTHER = ToyTokenizer(), ToyTokenizer("second")
PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 4), ("tool_result", 3), ("assistant_final", 3)]
SHARED = ("loss.mode=shared_vocab", "loss.cross_tokenizer=true")
SIZE = ToyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_position_embeddings=256
)
CPU = torch.device("cpu")


@pytest.fixture
def teacher():
    return ToyBackend(SIZE, 5, OTHER)


@pytest.fixture
def episodes(write_episode, small_toy):
    """Episodes of readable tokens: each id is a character or a fragment of ASCII."""
    ids = CODEC.encode("abc 12345 answer 678 thx tool and the unit, 90 Compute xyz ")
    return [
        write_episode(
            TWO_TURNS, n, trajectory_id=f"t{n}", token_ids=ids[n : n + 17], sampler=small_toy(1)
        )
        for n in range(3)
    ]


@pytest.fixture
def shared(specs_of):
    """Return f(teacher, episodes): what a teacher says on shared tokens, and the update's spec."""

    def ask(teacher, episodes, *overrides, chosen=None, **sizes):
        spec, update_spec = specs_of(*SHARED, *overrides)
        chosen = chosen or [select_positions(one, spec.selection, 0) for one in episodes]
        runtime = Runtime(**sizes)
        found = score_shared(teacher, CODEC, episodes, chosen, spec, runtime, teacher_digest="t")
        return found, update_spec, runtime

    return ask


@torch.no_grad()
def logits_at(backend, token_ids, position):
    ids_BT = torch.tensor([token_ids])
    hidden_BTH = backend.hidden_states(ids_BT, torch.tensor([len(token_ids)]))
    return backend.project(hidden_BTH[0, position])


def test_the_teacher_is_read_where_it_stands_at_the_student_s_byte(shared, teacher, episodes):
    found, _, _ = shared(teacher, episodes)
    targets = found.targets.gather([0, 1, 2], CPU, teacher.project)
    logits_NU, expected = targets.read().teacher_logits_NU, []
    for episode, selected in zip(episodes, found.targets.selected, strict=True):
        aligned = align_bytes(episode, CODEC, OTHER)
        assert selected.prediction_positions == [m.student_position - 1 for m in aligned.meetings]
        for meeting in aligned.meetings:
            place = meeting.teacher_position - 1
            expected.append(logits_at(teacher, aligned.teacher_ids, place))
    torch.testing.assert_close(logits_NU, torch.stack(expected), rtol=1e-4, atol=1e-5)
    pairs = shared_vocabulary(CODEC, OTHER)
    assert targets.pairs.student_ids_S.tolist() == list(pairs.student_ids)
    assert targets.pairs.teacher_ids_S.tolist() == list(pairs.teacher_ids)


def test_one_tokenizer_on_both_sides_gives_the_exact_divergence(
    shared, episodes, small_toy, scored_by
):
    """C37: all is shared, the rest is empty on both sides, and every position is met."""
    found, spec, runtime = shared(small_toy(2), episodes)
    plain, exact_spec, _ = scored_by(small_toy(2), episodes, "loss.mode=exact_full_vocab")
    assert found.targets.selected == plain.selected
    assert found.unaligned_bytes == 0
    rows = []
    for targets, own in ((found.targets, spec), (plain, exact_spec)):
        student = small_toy(1)
        state = initial_state(student)
        done = update(student, state, episodes, targets, own, runtime, teacher=small_toy(2))
        rows.append(done.rows[0])
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-5)
    assert rows[0]["grad_norm"] == pytest.approx(rows[1]["grad_norm"], rel=1e-4)
    assert rows[0]["objective_diagnostics"] == {"student_mass": 1.0, "teacher_mass": 1.0}


def test_the_loss_is_that_of_the_registered_objective(shared, teacher, episodes, small_toy):
    """Student and teacher logits taken one by one, against what an update reports."""
    found, spec, runtime = shared(teacher, episodes, "loss.aggregation=token-mean")
    student, values = small_toy(1), []
    gathered = found.targets.gather([0, 1, 2], CPU, teacher.project).read()
    assert isinstance(gathered, SharedTargets)
    for episode, selected in zip(episodes, found.targets.selected, strict=True):
        values += [logits_at(student, episode.token_ids, p) for p in selected.prediction_positions]
    objective = OBJECTIVES[objective_of(spec).options["divergence"]]
    expected = objective.evaluate(gathered, torch.stack(values), ObjectiveOptions()).mean()
    done = update(
        student, initial_state(student), episodes, found.targets, spec, runtime, teacher=teacher
    )
    assert done.rows[0]["loss"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("sizes", [{"trajectory_batch_size": 1}, {"length_bucketing": True}])
def test_physical_sizes_change_no_target(shared, teacher, episodes, sizes):
    whole, _, _ = shared(teacher, episodes)
    split, _, _ = shared(teacher, episodes, **sizes)
    torch.testing.assert_close(split.targets.values, whole.targets.values, rtol=1e-4, atol=1e-5)


def test_what_is_not_met_is_counted(shared, teacher, episodes):
    found, _, _ = shared(teacher, episodes)
    selected = sum(len(one.target_positions()) for one in episodes)
    kept = len(found.targets.values)
    assert found.counts == {
        "shared_tokens": len(shared_vocabulary(CODEC, OTHER).student_ids),
        "student_vocabulary": CODEC.vocab_size,
        "teacher_vocabulary": OTHER.vocab_size,
        "unaligned_positions": selected - kept,
    }
    met = [m for one in episodes for m in align_bytes(one, CODEC, OTHER).meetings]
    assert found.unaligned_bytes == found.model_bytes - sum(m.num_bytes for m in met)
    assert 0 < found.unaligned_bytes < found.model_bytes


def test_weights_stay_with_their_positions(shared, teacher, episodes):
    [first, second, *_] = episodes[0].target_positions()
    chosen = [SimpleNamespace(positions=[first, second], weights=[3.0, 0.5])]
    found, _, _ = shared(teacher, episodes[:1], chosen=chosen)
    [selected] = found.targets.selected
    known = {first - 1: 3.0, second - 1: 0.5}
    assert selected.weights == [known[p] for p in selected.prediction_positions]
    assert selected.prediction_positions


def test_targets_return_bit_by_bit(shared, teacher, episodes, tmp_path):
    saved = shared(teacher, episodes)[0].targets
    saved.save(tmp_path)
    loaded = load_targets(tmp_path)
    assert loaded.provenance == saved.provenance
    assert loaded.selected == saved.selected
    assert torch.equal(loaded.values, saved.values)
    assert torch.equal(loaded.pairs.student_ids_S, saved.pairs.student_ids_S)
    assert torch.equal(loaded.pairs.teacher_ids_S, saved.pairs.teacher_ids_S)


@pytest.mark.parametrize("divergence", ["reverse_kl", "jsd", "entropy_aware_kl"])
def test_the_canaries_judge_this_signal_too(shared, teacher, episodes, small_toy, divergence):
    """C47: another teacher changes the loss, and the student is no divergence from itself."""
    found, spec, runtime = shared(teacher, episodes, f"loss.divergence={divergence}")
    student = small_toy(1)
    measured = check_canaries(
        student, initial_state(student), episodes, found.targets, spec, runtime, teacher=teacher
    )
    assert measured["checked_trajectories"] == 3
    assert measured["divergence_from_itself"] < 1e-5
    assert measured["gradient_norm_from_itself"] < 1e-3 * measured["gradient_norm"]
    assert abs(measured["loss"] - measured["loss_with_another_teacher"]) > 1e-6


def test_the_report_names_the_teacher_s_tokens_in_the_student_s_vocabulary(
    shared, teacher, episodes, small_toy
):
    found, _, _ = shared(teacher, episodes)
    student = small_toy(1)
    examples = paired_examples(episodes, found.targets)
    targets = group_targets(student, found.targets, range(3), teacher)(range(3))
    seen = favourites(student, examples, targets, 4, 1.0)
    logprobs_NU = targets.read().teacher_logits_NU.log_softmax(-1)
    theirs = dict(zip(*(ids.tolist() for ids in vars(targets.pairs).values()), strict=True))
    ours = {their_id: own_id for own_id, their_id in theirs.items()}
    assert seen.teacher_N == [ours.get(best) for best in logprobs_NU.argmax(-1).tolist()]
    ids = [token for example in examples for token in example.target_ids]
    for n, (token, value) in enumerate(zip(ids, seen.teacher_logprobs_N, strict=True)):
        if token in theirs:
            assert value == pytest.approx(float(logprobs_NU[n, theirs[token]]), abs=1e-5)
        else:
            assert value is None
    assert None in seen.teacher_logprobs_N


def test_without_the_key_a_teacher_is_not_fed_with_the_student_s_ids(episodes, scored_by, teacher):
    """C67: every mode refuses another tokenizer, whatever its size."""
    for mode in ("bucketed_topk_tail", "exact_full_vocab", "union_topk"):
        with pytest.raises(TokenizerMismatchError, match="another tokenizer"):
            scored_by(teacher, episodes, f"loss.mode={mode}")


def test_another_loss_mode_is_refused(specs_of, teacher, episodes):
    spec, _ = specs_of("loss.mode=exact_full_vocab")
    chosen = [select_positions(one, spec.selection, 0) for one in episodes]
    with pytest.raises(AlignmentError, match="does not read the tokens that two vocabularies"):
        score_shared(teacher, CODEC, episodes, chosen, spec, Runtime(), teacher_digest="t")


def test_a_teacher_whose_tokens_have_no_bytes_is_refused(shared, episodes):
    class Silent:
        vocab_size, pad_id, eos_ids, digest = 256, 0, (), "silent"
        encode, decode = OTHER.encode, OTHER.decode

    with pytest.raises(TokenizerMismatchError, match="does not say which bytes"):
        shared(ToyBackend(SIZE, 5, Silent()), episodes)
