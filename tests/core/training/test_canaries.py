"""C47: distillation that does not distil leaves the loss falling; each way of it trips a check."""

import copy

import pytest
import torch

from core.errors import CanaryError
from core.losses.targets import BucketTargets
from core.training import group
from core.training.canaries import another_teacher, check_canaries

PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 3), ("assistant_final", 2)]
TOKEN_MEAN = "loss.aggregation=token-mean"
TOP_K = ("loss.divergence=forward_kl", "loss.scale_by_temperature_squared=false", TOKEN_MEAN)
SOUND = [
    ("loss.mode=bucketed_topk_tail", "loss.top_k=5"),
    ("loss.mode=exact_full_vocab", "loss.divergence=jsd"),
    ("loss.mode=union_topk", "loss.top_k=5"),
    ("loss.mode=forward_kl_topk", *TOP_K, "loss.top_k=200"),
    ("loss.mode=verl_pg_k1", TOKEN_MEAN),
    ("loss.temperature=2", "loss.teacher_temperature=0.5", "loss.top_k=5"),
    ("loss.sampled_token_nll_weight=0.5",),
]


class Asked:
    """A model whose own template begins a reply with ``prompt``."""

    def __init__(self, backend, prompt):
        self.backend = backend
        self.tokenizer = copy.copy(backend.tokenizer)
        self.tokenizer.generation_prompt = prompt

    def __getattr__(self, name):
        return getattr(self.backend, name)


@pytest.fixture
def check(small_toy, write_episode, scored_by, state_of):
    """Return f(overrides, student, teacher, changes of the spec): what the checks found."""

    def run(*overrides, student=None, teacher=None, **changes):
        student, teacher = student or small_toy(1), teacher or small_toy(2)
        episodes = [write_episode(TWO_TURNS, n, trajectory_id=f"t{n}", sampler=student)
                    for n in range(2)]  # fmt: skip
        scored, spec, runtime = scored_by(teacher, episodes, *overrides)
        spec = spec.model_copy(update=changes)
        before = state_of(student)
        found = check_canaries(student, before, episodes, scored, spec, runtime, teacher=teacher)
        assert state_of(student).digest() == before.digest()
        assert all(parameter.grad is None for parameter in student.trainable().values())
        return found

    return run


@pytest.mark.parametrize("overrides", SOUND, ids=lambda overrides: overrides[0])
def test_a_sound_signal_passes_and_moves_nothing(check, overrides):
    found = check(*overrides)
    assert found["checked_trajectories"] == 2
    assert abs(found["loss"] - found["loss_with_another_teacher"]) > 1e-6
    assert found["divergence_from_itself"] < 1e-5
    assert found["gradient_norm"] > 0.0
    assert found["parameters_without_gradient"] == []


def test_a_flat_objective_has_no_gradient_from_itself(check):
    found = check("loss.mode=exact_full_vocab")
    assert found["gradient_norm_from_itself"] < 1e-4 * found["gradient_norm"]


def test_the_nll_s_share_does_not_count_against_flatness(check):
    found = check("loss.mode=exact_full_vocab", "loss.sampled_token_nll_weight=0.9")
    assert found["gradient_norm_from_itself"] < 1e-4 * found["gradient_norm"]


@pytest.mark.parametrize(
    ("own", "theirs", "differ"),
    [("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n", True),
     ("a", "a", False), (None, "a", False), ("a", None, False)],
)  # fmt: skip
def test_a_teacher_that_begins_its_turns_otherwise_is_warned_of(
    check, small_toy, caplog, own, theirs, differ
):
    """C24: it thinks where the student does not, and every first token diverges."""
    found = check(student=Asked(small_toy(1), own), teacher=Asked(small_toy(2), theirs))
    assert found["generation_prompts_differ"] is differ
    assert ("begins a reply in another way" in caplog.text) is differ


def test_an_objective_without_a_teacher_is_no_defect(check):
    """Recipes refuse it on policy; whoever calls this is not sent to report a bug."""
    found = check(nll_weight=1.0)
    assert found["loss"] == found["loss_with_another_teacher"]
    assert found["gradient_norm"] > 0.0


def adapted(student, monkeypatch, b):
    """Put an adapter of rank 2 with this B before the head of a toy."""
    width = student.config.hidden_size
    generator = torch.Generator().manual_seed(0)
    a_RH = torch.nn.Parameter(torch.randn(2, width, generator=generator))
    b_HR = torch.nn.Parameter(torch.full((width, 2), b))
    student.parameters |= {"head.lora_A.weight": a_RH, "head.lora_B.weight": b_HR}
    plain = student.project
    monkeypatch.setattr(student, "project", lambda h_NH: plain(h_NH + h_NH @ a_RH.T @ b_HR.T))
    return student


@pytest.mark.parametrize(("b", "waiting"), [(0.0, ["head.lora_A.weight"]), (0.01, [])])
def test_a_fresh_adapter_s_a_waits_for_its_b(check, small_toy, monkeypatch, b, waiting):
    found = check("loss.top_k=5", student=adapted(small_toy(1), monkeypatch, b))
    assert found["parameters_without_gradient"] == waiting


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["unused", "other.lora_A.weight"])
def test_a_parameter_that_is_not_in_the_forward_pass_is_refused(check, small_toy, name):
    student = small_toy(1)
    student.parameters[name] = torch.nn.Parameter(torch.ones(2))
    message = rf"1 of \d+ trainable parameters receive no gradient, the first is {name}"
    with pytest.raises(CanaryError, match=message):
        check("loss.top_k=5", student=student)


class Biased(torch.autograd.Function):
    """The identity, with a gradient that does not come from the loss."""

    @staticmethod
    def forward(ctx, hidden_NH):
        return hidden_NH.clone()

    @staticmethod
    def backward(ctx, grad_NH):
        return grad_NH + 0.1


def test_a_gradient_that_the_teacher_did_not_cause_is_refused(check, small_toy, monkeypatch):
    student = small_toy(1)
    plain = student.project
    monkeypatch.setattr(student, "project", lambda hidden_NH: plain(Biased.apply(hidden_NH)))
    with pytest.raises(CanaryError, match="its own teacher the gradient keeps"):
        check("loss.mode=exact_full_vocab", student=student)


def test_a_loss_that_does_not_read_the_teacher_is_refused(check, monkeypatch):
    plain, first = group.selected_position_loss, []

    def deaf(hidden_NH, project, targets, *arguments, **options):
        first.append(targets)
        return plain(hidden_NH, project, first[0], *arguments, **options)

    monkeypatch.setattr(group, "selected_position_loss", deaf)
    with pytest.raises(CanaryError, match="another teacher gives the same loss"):
        check("loss.top_k=5")


def test_a_teacher_built_from_the_live_student_is_refused(check, small_toy):
    with pytest.raises(CanaryError, match="agrees with the student everywhere"):
        check("loss.mode=exact_full_vocab", student=small_toy(1), teacher=small_toy(1))


def test_a_model_that_cannot_learn_from_its_teacher_is_refused(check, small_toy, monkeypatch):
    student = small_toy(1)
    plain = student.hidden_states
    monkeypatch.setattr(student, "hidden_states", lambda ids, lengths: plain(ids, lengths).detach())
    monkeypatch.setattr(
        student, "project", lambda h: h @ student.parameters["embedding"].detach().T
    )
    with pytest.raises(CanaryError, match="no trainable parameter receives a gradient"):
        check("loss.mode=exact_full_vocab", student=student)


def test_forward_passes_that_differ_are_refused(check, small_toy, monkeypatch):
    """C52: dropout in one of two passes of one model shows as a divergence from itself."""
    student, calls = small_toy(1), []
    plain = student.hidden_states

    def noisy(token_ids_BT, lengths_B):
        calls.append(None)
        return plain(token_ids_BT, lengths_B) * (1.0 + 0.05 * len(calls))

    monkeypatch.setattr(student, "hidden_states", noisy)
    with pytest.raises(CanaryError, match="divergence from itself"):
        check("loss.top_k=5", student=student)


def test_a_parameter_that_moves_while_a_gradient_is_computed_is_refused(
    check, small_toy, monkeypatch
):
    student = small_toy(1)
    plain = student.hidden_states

    def restless(token_ids_BT, lengths_B):
        with torch.no_grad():
            student.parameters["norm"].add_(1e-6)
        return plain(token_ids_BT, lengths_B)

    monkeypatch.setattr(student, "hidden_states", restless)
    with pytest.raises(CanaryError, match="changed a parameter"):
        check("loss.top_k=5", student=student)


def test_another_teacher_prefers_other_tokens():
    targets = BucketTargets(
        torch.tensor([[0, 4]]), torch.tensor([[-0.1, -3.0]]), torch.tensor([-4.0])
    )
    assert another_teacher(targets, 5).support_ids_NK.tolist() == [[1, 0]]
    assert another_teacher(None, 5) is None
