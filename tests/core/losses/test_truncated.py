import pytest
import torch

from core.losses.buckets import support_targets, top_k_targets
from core.losses.truncated import truncated_forward_kl

T_NV = torch.tensor(
    [[2.0, 1.0, 0.0, -1.0, 0.5], [0.0] * 5, [5.0, -5.0, 1.0, 1.0, -2.0]], dtype=torch.float64
)
S_NV = torch.tensor(
    [[0.0, 1.0, 2.0, -1.0, 0.25], [1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 3.0, 0.0, 0.5, 0.0]],
    dtype=torch.float64,
)
TWO, ONE, ALL = [[0, 1], [0, 1], [0, 2]], [[0], [4], [0]], [[0, 1, 2, 3, 4]] * 3
MASS_TWO = [0.2914186908, 0.0433411518, 0.0567534491], [0.7701451679, 0.4, 0.9814252763]
MASS_ONE = [0.0783745569, 0.6364086466, 0.0152633533], [0.5630212318, 0.2, 0.9637731552]
MASS_ALL = [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]

# ids, options, loss, masses of student and teacher, overlap, advantage.
GOLDEN = [
    (TWO, {}, [1.1043381691, 0.9369904995, 3.980140686], MASS_TWO,
     [1, 0, 0], [0.0058371727, 0.0, 0.0]),
    (TWO, {"log_prob_min_clamp": -3.0}, [1.1043381691, 0.5562247634, 2.8557567596], MASS_TWO,
     [1, 0, 0], [0.0058371727, 0.0, 0.0]),
    (TWO, {"loss_max_clamp": 0.5}, [0.5, 0.5, 0.5], MASS_TWO, [1, 0, 0], [0.0058371727, 0.0, 0.0]),
    (ONE, {}, [1.1101753712, 0.0, 3.9952261448], MASS_ONE, [0, 1, 0], [0.0, 0.2315046936, 0.0]),
    (ONE, {"log_prob_min_clamp": -3.0}, [1.1101753712, 0.0, 2.8557567596], MASS_ONE,
     [0, 1, 0], [0.0, 0.2315046936, 0.0]),
    (ONE, {"loss_max_clamp": 0.5}, [0.5, 0.0, 0.5], MASS_ONE,
     [0, 1, 0], [0.0, 0.2315046936, 0.0]),
    (ALL, {"log_prob_min_clamp": -3.0}, [0.9776638746, 0.4617106616, 2.6996543407], MASS_ALL,
     [5, 5, 5], [-0.195532769, -0.0923421308, -0.5399308801]),
    (ALL, {"loss_max_clamp": 0.5}, [0.5, 0.5, 0.5], MASS_ALL,
     [5, 5, 5], [-0.195374772, -0.1684952825, -0.7904820442]),
]  # fmt: skip


@pytest.mark.parametrize(("ids", "options", "loss", "masses", "overlap", "advantage"), GOLDEN)
def test_truncated_forward_kl_has_its_published_values(
    ids, options, loss, masses, overlap, advantage
):
    targets = support_targets(T_NV, torch.tensor(ids))
    loss_N, diagnostics = truncated_forward_kl(targets, S_NV, **options)
    assert loss_N.tolist() == pytest.approx(loss, rel=1e-6, abs=1e-12)  # published in float32
    assert diagnostics.student_mass_N.tolist() == pytest.approx(masses[0], rel=1e-6)
    assert diagnostics.teacher_mass_N.tolist() == pytest.approx(masses[1], rel=1e-6)
    assert diagnostics.overlap_count_N.tolist() == overlap
    shares = diagnostics.overlap_token_advantage_N.tolist()
    assert shares == pytest.approx(advantage, rel=1e-6, abs=1e-7)


def test_a_negative_sum_is_clamped_its_gradient_lost_and_the_loss_of_it_reported():
    """C28: truncated −0.14, true 0.257, gradient 0."""
    teacher_NV = torch.tensor([[2.0, 1.0, 0.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    student_NV = torch.tensor([[3.0, 2.0, -2.0, -2.0, -2.0, -2.0]], dtype=torch.float64)
    leaf_NV = student_NV.requires_grad_()
    loss_N, diagnostics = truncated_forward_kl(top_k_targets(teacher_NV, 2), leaf_NV)
    loss_N.sum().backward()
    assert loss_N.tolist() == [0.0]
    assert float(leaf_NV.grad.abs().max()) == 0.0
    assert diagnostics.clamped_N.tolist() == [True]


def test_targets_at_another_temperature_are_refused():
    with pytest.raises(ValueError, match="temperature"):
        truncated_forward_kl(top_k_targets(T_NV, 2, 2.0), S_NV)


@pytest.mark.parametrize("clamp", [{"log_prob_min_clamp": 0.1}, {"loss_max_clamp": 0.0}])
def test_a_clamp_of_the_wrong_sign_is_refused(clamp):
    with pytest.raises(ValueError, match=next(iter(clamp))):
        truncated_forward_kl(top_k_targets(T_NV, 2), S_NV, **clamp)
