import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.losses import buckets, divergence
from core.losses.divergence import kl_from_log_probs
from core.losses.union import paired_union_categories, union_support

T_NV = torch.tensor([[4.0, 3.0, 0.0, -1.0, -2.0]], dtype=torch.float64)
S_NV = torch.tensor([[0.0, 3.0, 4.0, -2.0, -1.0]], dtype=torch.float64)


def union_reverse_kl(teacher_NV, student_NV, top_k):
    teacher_NC, student_NC = paired_union_categories(teacher_NV, student_NV, top_k, 1.0, 1e-300)
    return kl_from_log_probs(student_NC, teacher_NC)


def test_both_sides_choose_and_a_shared_choice_counts_once():
    ids_NK, repeated_NK = union_support(T_NV, S_NV, 2)
    assert ids_NK.tolist() == [[0, 1, 2, 1]]
    assert repeated_NK.tolist() == [[False, False, False, True]]
    teacher_NC, student_NC = paired_union_categories(T_NV, S_NV, 2, 1.0, 1e-9)
    p_V, q_V = T_NV.softmax(-1)[0], S_NV.softmax(-1)[0]
    expected = [p_V[0], p_V[1], p_V[2], 0.0, p_V[3] + p_V[4]]
    torch.testing.assert_close(teacher_NC.exp()[0], torch.tensor(expected, dtype=torch.float64))
    expected = [q_V[0], q_V[1], q_V[2], 0.0, q_V[3] + q_V[4]]
    torch.testing.assert_close(student_NC.exp()[0], torch.tensor(expected, dtype=torch.float64))


def test_the_student_s_favourite_is_seen_although_the_teacher_ignores_it():
    """C29, C30: a teacher-chosen support sees it only in the tail, where much is merged."""
    teacher_NV = torch.tensor([[2.0, 1.0, -3.0, 0.9, 0.8]], dtype=torch.float64)
    student_NV = torch.tensor([[2.0, 1.0, 9.0, -3.0, -3.0]], dtype=torch.float64)
    exact = float(divergence.reverse_kl(teacher_NV, student_NV))
    union = float(union_reverse_kl(teacher_NV, student_NV, 2))
    bucketed = float(buckets.reverse_kl(buckets.top_k_targets(teacher_NV, 2), student_NV))
    assert union == pytest.approx(exact, rel=1e-4)
    assert bucketed < 0.3 * exact


row = st.lists(st.floats(-9.0, 9.0), min_size=6, max_size=6)


@settings(deadline=None)
@given(row, row, st.integers(1, 7))
def test_the_union_lies_between_the_teacher_s_support_and_the_whole(teacher, student, top_k):
    teacher_NV = torch.tensor([teacher], dtype=torch.float64)
    student_NV = torch.tensor([student], dtype=torch.float64)
    union = float(union_reverse_kl(teacher_NV, student_NV, top_k))
    targets = buckets.top_k_targets(teacher_NV, top_k)
    low = float(buckets.reverse_kl(targets, student_NV, tail_epsilon=1e-300))
    high = float(divergence.reverse_kl(teacher_NV, student_NV))
    assert low - 1e-9 <= union <= high + 1e-9
    if top_k >= 6:
        assert union == pytest.approx(high, rel=1e-9, abs=1e-12)


def test_a_support_below_one_is_refused():
    with pytest.raises(ValueError, match="union_top_k"):
        union_support(T_NV, S_NV, 0)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shape"):
        paired_union_categories(T_NV, S_NV[:, :4], 2, 1.0, 1e-9)
