"""What a record says about memory, and how a whole run goes through the host."""

import pytest
import torch

from core.artifacts.store import Store
from core.models.device_memory import device_memory
from core.models.roles import RESIDENTS
from core.models.toy import ToyBackend
from core.recipe.loading import load_text
from core.recipe.runtime import Runtime
from flows.graphs.run import run_graph
from tasks import device_use
from tasks.caching import open_store, step
from tasks.device_use import DeviceUse

TINY = """\
models:
  student: {model_id: s, toy: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 16,
            max_position_embeddings: 256}}
  teacher: {model_id: t, toy_pretrain_steps: 2, toy_pretrain_batch_size: 2,
            toy: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 16,
                  max_position_embeddings: 256}}
environment: {name: calculator, params: {prompt_style: compact}, train_tasks: 8, eval_tasks: 2,
              test_tasks: 0}
rollout: {max_turns: 2, max_new_tokens_per_turn: 8, max_total_tokens: 128}
loss: {top_k: 8}
cold_start: {cycles: 2, rollouts_per_cycle: 4, learning_rate: 0.003}
train: {cycles: 2, rollouts_per_cycle: 4, gradient_accumulation_steps: 4, learning_rate: 0.001}
report: {enabled: false}
"""


class Counter:
    """A device that can tell, and remembers what was asked of it."""

    def __init__(self):
        self.asked = []

    def free_bytes(self):
        return 0

    def peak_bytes(self):
        return 123

    def reset_peak(self):
        self.asked.append("reset")

    def release_unused(self):
        self.asked.append("release")


@pytest.fixture(autouse=True)
def _no_resident_stays():
    RESIDENTS.evict()
    yield
    RESIDENTS.evict()


@pytest.fixture
def moves(monkeypatch):
    """Make every move of a toy a real one, into new storage, and count them."""
    seen = []
    own = ToyBackend.move_to

    def move_to(backend, device):
        seen.append(device)
        for parameter in backend.parameters.values():
            parameter.data = parameter.data.clone()
        own(backend, device)

    monkeypatch.setattr(ToyBackend, "move_to", move_to)
    return seen


def run(tmp_path, strategy, *changes):
    overrides = (f"memory.strategy={strategy}", f"runtime.store={tmp_path / strategy}", *changes)
    loaded = load_text(TINY, overrides)

    def call(one, spec, *, name, **parents):
        return one.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

    RESIDENTS.evict()
    return run_graph(loaded.recipe, call), Store(loaded.runtime.store)


@pytest.mark.parametrize("mode", ["bucketed_topk_tail", "exact_full_vocab"])
def test_swapped_and_resident_runs_have_the_same_keys_and_bytes(tmp_path, moves, mode):
    chosen = (f"loss.mode={mode}", "loss.top_k=1") if mode == "exact_full_vocab" else ()
    resident, _ = run(tmp_path, "resident", *chosen)
    assert moves == []
    swapped, store = run(tmp_path, "swap", *chosen)
    assert len(moves) > 8
    assert swapped.parts == resident.parts
    assert swapped.student == resident.student
    metrics = store.record(swapped.student).metrics
    assert (metrics["memory_strategy"], metrics["memory_reason"]) == ("swap", "asked for")


def test_a_cpu_says_that_it_did_not_measure(tmp_path):
    done, store = run(tmp_path, "auto")
    for role, ref in done.parts.items():
        if role != "cold_start":
            assert store.record(ref).metrics["peak_memory_bytes"] == "not measured", role
    metrics = store.record(done.student).metrics
    assert metrics["memory_reason"] == "auto: a CPU has no memory of its own"


def test_a_device_that_can_tell_is_asked_around_each_step(tmp_path, monkeypatch):
    counter = Counter()
    monkeypatch.setattr(device_use, "device_memory", lambda device: counter)

    @step(kind="measured", version="1", gpu=True)
    def works(context, spec):
        counter.asked.append("work")
        (context.out / "work.txt").write_text("done")
        return {"number": 1}

    runtime = Runtime(store=tmp_path / "store", device="cpu")
    ref = works.prepare(runtime.inherited, runtime=runtime, name="one").run()
    assert counter.asked == ["reset", "work", "release"]
    record = open_store(runtime.store).record(ref)
    assert record.metrics == {"number": 1, "peak_memory_bytes": 123}


def test_counter_and_cache_are_left_alone_where_the_runtime_says_so(monkeypatch):
    counter = Counter()
    monkeypatch.setattr(device_use, "device_memory", lambda device: counter)
    use = DeviceUse(
        Runtime(
            device="cpu",
            memory_reset_peak_stats_each_cycle=False,
            memory_empty_cache_between_phases=False,
        )
    )
    use.begin()
    use.end()
    assert (counter.asked, use.peak()) == ([], {"peak_memory_bytes": 123})


def test_memory_is_released_after_a_step_that_failed(tmp_path, monkeypatch):
    counter = Counter()
    monkeypatch.setattr(device_use, "device_memory", lambda device: counter)

    @step(kind="measured", version="1", gpu=True)
    def fails(context, spec):
        raise torch.OutOfMemoryError("full")

    runtime = Runtime(store=tmp_path / "store", device="cpu")
    with pytest.raises(torch.OutOfMemoryError):
        fails.prepare(runtime.inherited, runtime=runtime, name="one").run()
    assert counter.asked == ["reset", "release"]


def test_cuda_that_was_never_used_has_nothing_to_tell():
    cuda = device_memory("cuda:0")
    cuda.reset_peak()
    cuda.release_unused()
    if not torch.cuda.is_initialized():
        assert cuda.peak_bytes() is None
