import pytest
import torch

from core.losses.buckets import top_k_targets
from core.losses.chunked import selected_position_loss
from core.losses.divergence import entropy, reverse_kl
from core.losses.reduction import reduce_group
from core.losses.targets import ExactTargets, LogitTargets

T_NV = torch.tensor(
    [[2.0, 1.0, 0.0, -1.0, 0.5], [0.0] * 5, [5.0, -5.0, 1.0, 1.0, -2.0]], dtype=torch.float64
)
S_NV = torch.tensor(
    [[0.0, 1.0, 2.0, -1.0, 0.25], [1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 3.0, 0.0, 0.5, 0.0]],
    dtype=torch.float64,
)
WEIGHTS_N = torch.tensor([1.0, 3.0, 0.5])
TARGET_IDS_N = torch.tensor([0, 4, 1])


def identity(hidden):
    return hidden


def random_head(hidden_size=8, vocabulary=29, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(vocabulary, hidden_size, generator=generator, dtype=torch.float64)


def random_hidden(rows=37, hidden_size=8, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, hidden_size, generator=generator, dtype=torch.float64)


# divergence, NLL weight: loss, per-position divergence, first row of the gradient.
GOLDEN = [
    ("forward_kl", 0.0, 1.21789082, [0.97687394, 0.84247648, 3.9524106],
     [-0.10769926, 0.0013155995, 0.11175941, 0.00017804703, -0.0055537988]),
    ("forward_kl", 0.25, 1.13525974, [0.97687394, 0.84247648, 3.9524106],
     [-0.13197586, 0.012822487, 0.11599256, 0.0017353348, 0.0014254804]),
    ("reverse_kl", 0.0, 1.56698973, [1.0045022, 0.60946508, 8.4371128],
     [-0.051837283, -0.046222062, 0.13173941, -0.0062554759, -0.027424585]),
    ("reverse_kl", 0.25, 1.39708393, [1.0045022, 0.60946508, 8.4371128],
     [-0.090079377, -0.022830759, 0.13097756, -0.0030898074, -0.014977609]),
    ("jsd", 0.0, 0.220032229, [0.21328107, 0.15702387, 0.61158467],
     [-0.014107443, -0.004663553, 0.023070274, -0.00063114326, -0.0036681348]),
    ("jsd", 0.25, 0.386865799, [0.21328107, 0.15702387, 0.61158467],
     [-0.061781997, 0.0083381227, 0.049475706, 0.0011284421, 0.0028397284]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nll_weight", "loss", "divergence", "gradient"), GOLDEN)
@pytest.mark.parametrize("exact", [True, False])
def test_chunked_loss_has_its_published_values(name, nll_weight, loss, divergence, gradient, exact):
    targets = ExactTargets(T_NV, identity) if exact else LogitTargets(T_NV)
    output = selected_position_loss(
        S_NV, identity, targets, WEIGHTS_N,
        chunk_size=2, divergence=name, nll_weight=nll_weight, target_ids_N=TARGET_IDS_N,
        backward=True,
    )  # fmt: skip
    assert float(output.loss) == pytest.approx(loss, rel=5e-8)  # published in float32
    assert output.divergence_N.tolist() == pytest.approx(divergence, rel=1e-7)
    assert output.grad_hidden_NH[0].tolist() == pytest.approx(gradient, rel=1e-6)
    assert (output.total_weight, output.num_chunks, output.num_positions) == (4.5, 2, 3)
    expected_nll = [2.5462558, 0.4519144, 0.18230054]
    assert output.nll_N is None or output.nll_N.tolist() == pytest.approx(expected_nll, rel=1e-6)
    assert (output.nll_N is None) == (nll_weight == 0)


def test_supervised_loss_has_its_published_values():
    output = selected_position_loss(
        S_NV, identity, None, WEIGHTS_N, chunk_size=2, target_ids_N=TARGET_IDS_N, backward=True
    )
    expected_NV = [
        [-0.20480566, 0.04734315, 0.128692, 0.006407198, 0.022363318],
        [0.0077708215, 0.021123283, 0.057419039, 0.15608111, -0.24239425],
        [0.001695928, -0.018516574, 0.0046100104, 0.0076006223, 0.0046100104],
    ]
    assert float(output.loss) == pytest.approx(0.887366524, rel=5e-8)
    torch.testing.assert_close(
        output.grad_hidden_NH, torch.tensor(expected_NV, dtype=torch.float64), rtol=1e-6, atol=1e-9
    )
    assert output.divergence_N is None


def test_weights_of_zero_give_loss_and_gradient_of_zero():
    output = selected_position_loss(
        S_NV, identity, LogitTargets(T_NV), torch.zeros(3), chunk_size=2, backward=True
    )
    assert float(output.loss) == 0.0
    assert output.total_weight == 0.0
    assert float(output.grad_hidden_NH.abs().max()) == 0.0


@pytest.mark.parametrize("chunk_size", [1, 3, 8, 37, 1000])
@pytest.mark.parametrize("kind", ["exact", "buckets", "nll"])
def test_chunk_size_changes_neither_loss_nor_gradient(chunk_size, kind):
    def evaluate(size):
        head_VH = random_head().requires_grad_()
        hidden_NH = random_hidden().requires_grad_()
        teacher_VH = random_head(seed=11)
        exact = ExactTargets(random_hidden(seed=7), lambda h: h @ teacher_VH.T)
        buckets = top_k_targets(random_hidden(seed=7) @ teacher_VH.T, 4)
        targets = {"exact": exact, "buckets": buckets, "nll": None}[kind]
        output = selected_position_loss(
            hidden_NH, lambda h: h @ head_VH.T, targets, torch.linspace(0.0, 2.0, 37),
            chunk_size=size, target_ids_N=torch.arange(37) % 29, nll_weight=0.3, backward=True,
        )  # fmt: skip
        return output.loss, hidden_NH.grad, head_VH.grad

    for got, expected in zip(evaluate(chunk_size), evaluate(37), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-13)


def test_micro_batches_add_up_to_the_group():
    weights = [[1.0] * 10, [2.0] * 27]
    for aggregation in ("native_per_trajectory", "token-mean"):
        group = reduce_group(weights, aggregation)
        rows = [torch.tensor(row, dtype=torch.float64) for row in group.weights]
        teacher_NV = random_hidden(seed=7) @ random_head(seed=11).T
        head_VH = random_head()

        def evaluate(start, stop, rows=rows, group=group, teacher_NV=teacher_NV, head_VH=head_VH):
            return selected_position_loss(
                random_hidden()[start:stop], lambda h: h @ head_VH.T,
                LogitTargets(teacher_NV[start:stop]), torch.cat(rows)[start:stop],
                chunk_size=5, denominator=group.denominator, backward=True,
            )  # fmt: skip

        whole, parts = evaluate(0, 37), [evaluate(0, 10), evaluate(10, 37)]
        torch.testing.assert_close(parts[0].loss + parts[1].loss, whole.loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(
            torch.cat([part.grad_hidden_NH for part in parts]), whole.grad_hidden_NH
        )


def test_two_stages_give_the_gradient_of_one_graph():
    head_VH = random_head().requires_grad_()
    below_NH = random_hidden().requires_grad_()
    teacher_NV = random_hidden(seed=7) @ random_head(seed=11).T
    weights_N = torch.linspace(0.0, 2.0, 37, dtype=torch.float64)

    selected_position_loss(
        (below_NH * 1.5).sin(), lambda h: h @ head_VH.T, LogitTargets(teacher_NV), weights_N,
        chunk_size=4, backward=True,
    )  # fmt: skip
    chunked = below_NH.grad, head_VH.grad
    below_NH.grad = head_VH.grad = None
    loss = (reverse_kl(teacher_NV, (below_NH * 1.5).sin() @ head_VH.T) * weights_N).sum()
    (loss / weights_N.sum()).backward()
    torch.testing.assert_close(chunked, (below_NH.grad, head_VH.grad), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    "head",
    [
        lambda h: (h @ random_head().T).tanh(),  # its backward reads its own output
        lambda h: 3.0 * (h @ random_head().T / 3.0).tanh(),  # soft cap
        lambda h: h,  # aliases the hidden states
        lambda h: h.view_as(h),
        lambda h: (h @ random_head().T).exp(),
    ],
)
def test_no_head_is_disturbed_by_the_reuse_of_its_logits(head):
    hidden_NH = random_hidden().requires_grad_()
    before = hidden_NH.detach().clone()
    teacher_NV = head(random_hidden(seed=7))
    kept = teacher_NV.clone()
    output = selected_position_loss(
        hidden_NH, head, LogitTargets(teacher_NV), torch.ones(37), chunk_size=10, backward=True
    )
    (expected,) = torch.autograd.grad(reverse_kl(teacher_NV, head(hidden_NH)).mean(), hidden_NH)
    torch.testing.assert_close(output.grad_hidden_NH, expected, rtol=1e-10, atol=1e-13)
    assert torch.equal(hidden_NH.detach(), before)
    assert torch.equal(teacher_NV, kept)


def test_rows_split_into_blocks_give_the_same_result(monkeypatch):
    def evaluate():
        return selected_position_loss(
            random_hidden(), lambda h: h @ random_head().T,
            LogitTargets(random_hidden(seed=7) @ random_head(seed=11).T), torch.ones(37),
            chunk_size=16, backward=True,
        )  # fmt: skip

    whole = evaluate()
    monkeypatch.setattr("core.losses.chunked.BLOCK_ELEMENTS", {"cpu": 29 * 3, "cuda": 1})
    blocks = evaluate()
    torch.testing.assert_close(blocks.loss, whole.loss, rtol=1e-14, atol=0)
    torch.testing.assert_close(blocks.grad_hidden_NH, whole.grad_hidden_NH, rtol=1e-12, atol=1e-15)


def test_a_frozen_head_gets_no_gradient_buffer():
    head_VH = random_head()
    selected_position_loss(
        random_hidden(), lambda h: h @ head_VH.T, LogitTargets(torch.zeros(37, 29)),
        torch.ones(37), chunk_size=8, backward=True,
    )  # fmt: skip
    assert head_VH.grad is None


def test_loss_scale_multiplies_gradients_only():
    def evaluate(scale):
        return selected_position_loss(
            S_NV, identity, LogitTargets(T_NV), WEIGHTS_N,
            chunk_size=2, loss_scale=scale, backward=True,
        )  # fmt: skip

    plain, scaled = evaluate(1.0), evaluate(8.0)
    assert float(scaled.loss) == float(plain.loss)
    torch.testing.assert_close(scaled.grad_hidden_NH, 8.0 * plain.grad_hidden_NH)


def test_without_backward_nothing_has_a_gradient():
    hidden_NH = S_NV.clone().requires_grad_()
    output = selected_position_loss(
        hidden_NH, identity, LogitTargets(T_NV), WEIGHTS_N, chunk_size=2
    )
    assert output.grad_hidden_NH is None
    assert hidden_NH.grad is None
    assert not output.loss.requires_grad


def test_the_teacher_s_entropy_comes_along():
    for targets in (LogitTargets(T_NV), ExactTargets(T_NV, identity), top_k_targets(T_NV, 2)):
        output = selected_position_loss(S_NV, identity, targets, WEIGHTS_N, chunk_size=2)
        torch.testing.assert_close(output.teacher_entropy_N, entropy(T_NV))


def test_an_empty_selection_is_a_no_op():
    hidden_NH = torch.zeros(0, 8, requires_grad=True)
    output = selected_position_loss(
        hidden_NH, lambda h: h @ random_head().T.float(), LogitTargets(torch.zeros(0, 29)),
        torch.zeros(0), chunk_size=4, backward=True,
    )  # fmt: skip
    assert float(output.loss) == 0.0
    assert output.objective_N.shape == (0,)
    assert output.grad_hidden_NH.shape == (0, 8)
    assert output.num_chunks == 0
    assert hidden_NH.grad is None


def test_an_unweighted_row_of_garbage_leaves_loss_and_gradient_alone():
    garbage_NV = torch.cat([S_NV, torch.full((1, 5), torch.nan, dtype=torch.float64)])
    output = selected_position_loss(
        garbage_NV, identity, LogitTargets(torch.cat([T_NV, T_NV[:1]])),
        torch.cat([WEIGHTS_N, torch.zeros(1)]), chunk_size=9, backward=True,
    )  # fmt: skip
    assert float(output.loss) == pytest.approx(1.56698973, rel=5e-8)
    assert output.grad_hidden_NH[3].tolist() == [0.0] * 5


def test_a_teacher_row_of_minus_infinity_is_refused_even_without_a_weight():
    """C32: hiding the forward value with nan_to_num would leave NaN in the gradient."""
    excluded_NV = torch.cat([T_NV, torch.full((1, 5), -torch.inf, dtype=torch.float64)])
    with pytest.raises(ValueError, match="−inf"):
        selected_position_loss(
            torch.cat([S_NV, S_NV[:1]]), identity, LogitTargets(excluded_NV),
            torch.cat([WEIGHTS_N, torch.zeros(1)]), chunk_size=9, backward=True,
        )  # fmt: skip


def test_bfloat16_heads_are_evaluated_in_float32():
    head_VH = random_head().bfloat16()
    hidden_NH = random_hidden().bfloat16()
    teacher_NV = random_hidden(seed=7) @ random_head(seed=11).T
    output = selected_position_loss(
        hidden_NH, lambda h: h @ head_VH.T, LogitTargets(teacher_NV.bfloat16()), torch.ones(37),
        chunk_size=8, backward=True,
    )  # fmt: skip
    expected_N = reverse_kl(teacher_NV.bfloat16(), hidden_NH @ head_VH.T)
    assert output.objective_N.dtype == torch.float32
    assert output.grad_hidden_NH.dtype == torch.bfloat16
    torch.testing.assert_close(output.objective_N, expected_N, rtol=1e-5, atol=1e-5)


REFUSED = [
    ({"chunk_size": 0}, "chunk_size"),
    ({"nll_weight": 1.5}, "nll_weight"),
    ({"nll_weight": 0.5}, "target_ids_N"),
    ({"divergence": "wasserstein"}, "wasserstein"),
    ({"weights_N": torch.ones(2)}, "3 hidden states but 2 weights"),
    ({"weights_N": torch.tensor([1.0, -1.0, 1.0])}, "non-negative"),
    ({"weights_N": torch.tensor([1.0, torch.nan, 1.0])}, "finite"),
    ({"targets": LogitTargets(T_NV[:2])}, "3 hidden states but 2 targets"),
    ({"denominator": -1.0}, "denominator"),
    ({"targets": top_k_targets(T_NV, 2, 2.0)}, "temperature"),
    ({"targets": None}, "target_ids_N"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_bad_input_is_refused(change, message):
    call = {
        "hidden_NH": S_NV, "project": identity, "targets": LogitTargets(T_NV),
        "weights_N": WEIGHTS_N, "chunk_size": 2, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        selected_position_loss(**call)
