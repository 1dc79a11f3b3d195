"""What only a CUDA device can show. Everything here skips, and says why, where there is none."""

import pytest
import torch

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.models.roles import Identity, Residents
from core.models.shape import ModelShape
from core.models.swap import MemoryRules
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episodes import run_episodes
from core.rollout.independence import measured_independence
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.noise import uniforms
from core.rollout.shape import EngineShape
from core.training.memory_plan import saved_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none"
    ),
]

LIMITS = EpisodeLimits(max_turns=2, max_new_tokens_per_turn=12, max_total_tokens=128)


def toy(device):
    config = ToyConfig(64, 2, 4, 128, 256)
    return ToyBackend(config, 5, ToyTokenizer(), device=device)


def play(backend, slots, tasks):
    return run_episodes(
        backend,
        lambda: make_environment("calculator", prompt_style="compact"),
        tasks,
        LIMITS,
        SamplingSpec(temperature=1.0),
        seed=9,
        trajectory_ids=[task.task_id for task in tasks],
        policy_version=0,
        model_digest=None,
        slots=slots,
    )


@pytest.fixture(scope="module")
def tasks():
    world = make_environment("calculator", prompt_style="compact")
    return make_splits(world, {"train": 12}, seed=7, difficulty="easy")["train"]


def test_noise_has_the_same_bits_as_on_the_cpu():
    keys_S = torch.arange(1, 65, dtype=torch.int64) * 0x9E3779B97F4A7C1
    on_cpu, on_cuda = uniforms(keys_S, 40), uniforms(keys_S.cuda(), 40).cpu()
    assert torch.equal(on_cpu, on_cuda)


def test_episodes_do_not_depend_on_slots_where_the_check_says_so(tasks):
    backend = toy("cuda")
    if not measured_independence(backend, EngineShape.of(backend, LIMITS)).rows_are_independent:
        pytest.skip("this device's kernels mix rows, and the records say so")
    assert play(backend, 3, tasks) == play(backend, 12, tasks)


def test_cuda_and_cpu_differ_by_rounding_only():
    ids_BT = torch.arange(40).reshape(2, 20) + 10
    lengths_B = torch.tensor([20, 15])
    hidden_cpu = toy("cpu").hidden_states(ids_BT, lengths_B)
    hidden_cuda = toy("cuda").hidden_states(ids_BT.cuda(), lengths_B.cuda()).cpu()
    torch.testing.assert_close(hidden_cuda[0], hidden_cpu[0], rtol=1e-4, atol=1e-4)


def test_weights_come_back_from_the_host_with_every_bit():
    residents = Residents()
    rules = MemoryRules("swap")

    def acquire(role):
        identity = Identity(digest=role, dtype="float32", device="cuda")
        return residents.acquire(role, identity, lambda: toy("cuda"), rules=rules)

    student = acquire("student").backend
    before = {name: p.detach().cpu() for name, p in student.trainable().items()}
    held = torch.cuda.memory_allocated()
    acquire("teacher")
    assert student.device.type == "cpu"
    assert torch.cuda.memory_allocated() <= held
    acquire("student")
    assert student.device.type == "cuda"
    assert all(torch.equal(p.cpu(), before[name]) for name, p in student.trainable().items())


def test_a_backward_pass_takes_about_what_is_planned():
    backend = ToyBackend(ToyConfig(256, 4, 4, 512, 512), 1, ToyTokenizer(), device="cuda")
    shape = ModelShape(256, 4, 4, 4, 64, 512, backend.vocab_size, tied=True, dtype="float32")
    tokens = torch.arange(8 * 512, device="cuda").reshape(8, 512) % backend.vocab_size
    lengths = torch.full((8,), 512, device="cuda")
    backend.hidden_states(tokens, lengths).sum().backward()
    for parameter in backend.parameters.values():
        parameter.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    backend.hidden_states(tokens, lengths).sum().backward()
    measured = torch.cuda.max_memory_allocated() - before
    planned = saved_bytes(shape, 8, 512, rank=0) + shape.weight_bytes
    assert 0.7 <= planned / measured <= 1.6
