import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.losses.divergence import entropy, forward_kl, jensen_shannon, reverse_kl

TEACHER = [[2.0, 1.0, 0.0, -1.0, 0.5], [0.0] * 5, [5.0, -5.0, 1.0, 1.0, -2.0]]
STUDENT = [[0.0, 1.0, 2.0, -1.0, 0.25], [1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 3.0, 0.0, 0.5, 0.0]]
T_NV = torch.tensor(TEACHER, dtype=torch.float64)
S_NV = torch.tensor(STUDENT, dtype=torch.float64)
DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]


def exactly(tensor, expected, rel=1e-9):
    torch.testing.assert_close(
        tensor, torch.tensor(expected, dtype=tensor.dtype), rtol=rel, atol=1e-12
    )


def test_forward_kl_has_its_published_values():
    exactly(forward_kl(T_NV, S_NV), [0.976873935961, 0.842476483503, 3.95241058341])


def test_reverse_kl_has_its_published_values():
    exactly(reverse_kl(T_NV, S_NV), [1.0045021574, 0.609465084159, 8.43711278024])


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (0.1, [0.0828074404306, 0.067645122887, 0.267717911737]),
        (0.5, [0.213281074966, 0.157023874033, 0.61158466722]),
        (0.9, [0.084458997337, 0.0544935438645, 0.287238707444]),
    ],
)
def test_jensen_shannon_has_its_published_values(weight, expected):
    exactly(jensen_shannon(T_NV, S_NV, teacher_weight=weight), expected)


@pytest.mark.parametrize(
    ("tau", "scale", "fkl", "rkl", "jsd"),
    [
        (0.5, True, [0.815122698032, 0.633982536119, 2.00105856132],
         [0.828411615021, 0.287872147484, 4.94819229348],
         [0.128598854213, 0.0740648616999, 0.172616302777]),
        (0.5, False, [3.26049079213, 2.53593014447, 8.00423424528],
         [3.31364646008, 1.15148858994, 19.7927691739],
         [0.514395416853, 0.2962594468, 0.690465211106]),
        (2.0, True, [0.951459097537, 0.950654933564, 6.73964851676],
         [0.971444010483, 0.860611799701, 10.3541262481],
         [0.230841711442, 0.218262515642, 1.44081054887]),
        (2.0, False, [0.237864774384, 0.237663733391, 1.68491212919],
         [0.242861002621, 0.215152949925, 2.58853156202],
         [0.0577104278604, 0.0545656289105, 0.360202637217]),
        (4.0, True, [0.892767104627, 0.986785150792, 8.86388647326],
         [0.903259149095, 0.960990562317, 10.7017631873],
         [0.222198133421, 0.241299979384, 2.16574906048]),
        (4.0, False, [0.0557979440392, 0.0616740719245, 0.553992904579],
         [0.0564536968184, 0.0600619101448, 0.668860199207],
         [0.0138873833388, 0.0150812487115, 0.13535931628]),
    ],
)  # fmt: skip
def test_temperature_has_its_published_effect(tau, scale, fkl, rkl, jsd):
    options = {"temperature": tau, "scale_by_temperature_squared": scale}
    exactly(forward_kl(T_NV, S_NV, **options), fkl)
    exactly(reverse_kl(T_NV, S_NV, **options), rkl)
    exactly(jensen_shannon(T_NV, S_NV, **options), jsd)


@pytest.mark.parametrize(
    ("tau", "expected"),
    [
        (1.0, [1.20648920762, 1.60943791243, 0.184705780707]),
        (2.0, [1.49146768937, 1.60943791243, 0.788784201129]),
    ],
)
def test_entropy_has_its_published_values(tau, expected):
    exactly(entropy(T_NV, temperature=tau), expected)


GRADIENTS = {
    ("forward_kl", 1.0): [
        [-0.4846466749, 0.005920197777, 0.50291736, 0.000801211643, -0.02499209451],
        [-0.188343769, -0.1683150792, -0.1138714556, 0.03412165725, 0.4364086466],
        [-0.948509802, 0.8333070964, 0.02383797474, 0.05075348242, 0.04061124846],
    ],
    ("reverse_kl", 1.0): [
        [-0.2332677731, -0.207999281, 0.5928273298, -0.02814964161, -0.1234106341],
        [-0.04023662816, -0.07768957437, -0.1250536138, -0.1058093088, 0.3487891252],
        [-0.192051356, 1.181263176, -0.3145992319, -0.4844836436, -0.1901289444],
    ],
    ("jensen_shannon", 1.0): [
        [-0.06348349444, -0.02098598839, 0.1038162342, -0.002840144682, -0.01650660669],
        [-0.01387326678, -0.02330138373, -0.02936472239, -0.01156150758, 0.07810088048],
        [-0.03103251073, 0.03949447288, -0.00538651412, -0.004608016834, 0.0015325688],
    ],
    ("forward_kl", 2.0): [
        [-0.467664539, 0.009645898568, 0.4894184703, 0.003548527775, -0.03494835771],
        [-0.2839755652, -0.2087080464, -0.08461288724, 0.1199854413, 0.4573110576],
        [-1.38462203, 1.060300493, 0.0318874958, 0.09973677916, 0.1926972628],
    ],
    ("reverse_kl", 2.0): [
        [-0.3438602976, -0.1029379488, 0.595277227, -0.03786875507, -0.1106102255],
        [-0.1685622345, -0.1822661647, -0.1428125464, 0.02453463775, 0.4691063079],
        [-0.7165220739, 2.199822084, -0.5841338134, -0.6733592053, -0.225806991],
    ],
    ("jensen_shannon", 2.0): [
        [-0.0931455923, -0.01083591513, 0.1255873928, -0.003986310403, -0.01761957495],
        [-0.0496701137, -0.04709193678, -0.02883751691, 0.01705431532, 0.1085452521],
        [-0.1514156223, 0.1860641713, -0.0318799127, -0.0243167161, 0.0215480798],
    ],
}


@pytest.mark.parametrize(("name", "tau"), GRADIENTS)
def test_gradients_have_their_published_values(name, tau):
    student_NV = S_NV.clone().requires_grad_()
    divergence = {function.__name__: function for function in DIVERGENCES}[name]
    divergence(T_NV, student_NV, temperature=tau).sum().backward()
    torch.testing.assert_close(
        student_NV.grad,
        torch.tensor(GRADIENTS[name, tau], dtype=torch.float64),
        rtol=1e-9,
        atol=1e-10,
    )


def test_jensen_shannon_vanishes_towards_its_ends_and_recovers_forward_kl():
    """Table of seed 13: JS_w / w tends to KL(teacher‖student).

    Superseded: 0.8532112240791321, 8.379206e-03 and 8.516113e-04 were summed in float32; the
    float64 values of the same logits stand here.
    """
    generator = torch.Generator().manual_seed(13)
    teacher_NV = torch.randn(4, 11, generator=generator).double()
    student_NV = torch.randn(4, 11, generator=generator).double()
    exactly(forward_kl(teacher_NV, student_NV).mean(), 0.8532112349344614)
    for weight, expected in [
        (0.5, 1.839693e-01), (0.1, 7.205847e-02), (0.01, 8.379234e-03), (0.001, 8.516545e-04)
    ]:  # fmt: skip
        value = float(jensen_shannon(teacher_NV, student_NV, teacher_weight=weight).mean())
        assert value == pytest.approx(expected, rel=1e-6)


logits = st.lists(st.floats(-30.0, 30.0), min_size=2, max_size=9)


@given(logits, st.randoms(use_true_random=False), st.sampled_from([0.5, 1.0, 4.0]))
def test_divergences_are_non_negative_and_directions_mirror_each_other(row, shuffler, tau):
    teacher_NV = torch.tensor([row], dtype=torch.float64)
    other = row[:]
    shuffler.shuffle(other)
    student_NV = torch.tensor([other], dtype=torch.float64)
    forward = float(forward_kl(teacher_NV, student_NV, temperature=tau))
    assert forward >= -1e-12
    assert forward == pytest.approx(float(reverse_kl(student_NV, teacher_NV, temperature=tau)))
    jsd = float(jensen_shannon(teacher_NV, student_NV, temperature=tau)) / tau**2
    assert -1e-12 <= jsd <= math.log(2) + 1e-12
    swapped = float(jensen_shannon(student_NV, teacher_NV, temperature=tau)) / tau**2
    assert jsd == pytest.approx(swapped, abs=1e-12)


@given(logits, st.floats(-100, 100))
def test_a_constant_added_to_logits_changes_nothing(row, shift):
    teacher_NV = torch.tensor([row], dtype=torch.float64)
    student_NV = teacher_NV.flip(-1)
    for divergence in DIVERGENCES:
        plain = float(divergence(teacher_NV, student_NV))
        shifted = float(divergence(teacher_NV + shift, student_NV - shift))
        assert shifted == pytest.approx(plain, abs=1e-9)


def test_permuting_the_vocabulary_changes_nothing():
    order = [3, 0, 4, 1, 2]
    for divergence in DIVERGENCES:
        torch.testing.assert_close(
            divergence(T_NV[:, order], S_NV[:, order]), divergence(T_NV, S_NV), rtol=1e-12, atol=0
        )


def test_equal_logits_give_exactly_zero_even_at_extremes():
    """C35: 0/0 at student = teacher is NaN elsewhere."""
    extreme_NV = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]])
    for divergence in DIVERGENCES:
        assert divergence(extreme_NV, extreme_NV).tolist() == [0.0, 0.0]


def test_opposite_extremes_keep_the_value_of_the_log_ratio():
    teacher_NV = torch.tensor([[1e4, -1e4]])
    student_NV = torch.tensor([[-1e4, 1e4]], requires_grad=True)
    for divergence in (forward_kl, reverse_kl):
        value_N = divergence(teacher_NV, student_NV)
        (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
        assert value_N.tolist() == [20_000.0]
        assert bool(grad_NV.isfinite().all())
    value_N = jensen_shannon(teacher_NV, student_NV.detach())
    assert float(value_N) == pytest.approx(math.log(2), rel=1e-6)


def test_columns_excluded_on_both_sides_count_as_absent_with_finite_gradients():
    """C32: a −inf pad leaves the loss finite but the gradient NaN when it is masked afterwards."""
    gone_N1 = torch.full((3, 1), -math.inf, dtype=torch.float64)
    for divergence in DIVERGENCES:
        student_NV = torch.cat([S_NV, gone_N1], dim=-1).requires_grad_()
        value_N = divergence(torch.cat([T_NV, gone_N1], dim=-1), student_NV)
        (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
        torch.testing.assert_close(value_N, divergence(T_NV, S_NV), rtol=1e-12, atol=0)
        assert bool(grad_NV.isfinite().all())
        assert grad_NV[:, -1].tolist() == [0.0, 0.0, 0.0]


def test_half_precision_is_upcast_and_float64_is_kept():
    for divergence in DIVERGENCES:
        assert divergence(T_NV, S_NV).dtype == torch.float64
        halves_N = divergence(T_NV.bfloat16(), S_NV.bfloat16())
        assert halves_N.dtype == torch.float32
        torch.testing.assert_close(halves_N, divergence(T_NV, S_NV).float(), rtol=1e-5, atol=1e-6)


def test_no_position_gives_no_value():
    for divergence in DIVERGENCES:
        assert divergence(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0,)


@pytest.mark.parametrize("tau", [1.0, 2.0])
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_gradient_agrees_with_finite_differences(divergence, tau):
    student_NV = S_NV.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: divergence(T_NV, s, temperature=tau), (student_NV,))


@pytest.mark.parametrize("teacher_weight", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_the_ends_of_the_mixture_are_refused(teacher_weight):
    with pytest.raises(ValueError, match="teacher_weight"):
        jensen_shannon(T_NV, S_NV, teacher_weight=teacher_weight)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        forward_kl(T_NV, S_NV, temperature=temperature)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shape"):
        forward_kl(T_NV, S_NV[:, :4])


def test_a_column_excluded_on_one_side_only_is_refused():
    student_NV = S_NV.clone()
    student_NV[0, 2] = -math.inf
    for divergence in DIVERGENCES:
        with pytest.raises(ValueError, match="one side only"):
            divergence(T_NV, student_NV)


def test_a_row_without_any_column_is_refused():
    gone_NV = torch.full((1, 3), -math.inf)
    with pytest.raises(ValueError, match="no distribution"):
        reverse_kl(gone_NV, gone_NV)
