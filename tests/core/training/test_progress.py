import json
import logging
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.recipe.training_specs import BudgetSpec, OptimizerSpec, ScheduleSpec
from core.rollout.oracle import oracle_trajectory
from core.training.budget import Meter
from core.training.course import SupervisedPlan
from core.training.progress import PLACE, Progress
from core.training.state import OPTIMIZER, STATE, TRAINABLE
from core.training.step import Stepper
from core.training.supervised import examples_of, fit

PLAN = SupervisedPlan(
    cycles=4,
    rollouts_per_cycle=5,
    group_size=3,
    order_seed=11,
    optimizer=OptimizerSpec(
        name="adamw", weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8, max_grad_norm=1.0
    ),
    schedule=ScheduleSpec(base=5e-3, kind="cosine", warmup_steps=2, total_steps=8, first_step=0),
    aggregation="native_per_trajectory",
)
STEPS = 8
RUNTIME = Runtime(trajectory_batch_size=3)


class Killed(BaseException):
    """Ends a fit like a signal does."""


@pytest.fixture(scope="module")
def examples():
    world = make_environment("calculator", prompt_style="compact")
    tasks = make_splits(world, {"train": 12, "eval": 0, "test": 0}, 7, "easy")["train"]
    return examples_of([oracle_trajectory(world, task, ToyTokenizer()) for task in tasks])


@pytest.fixture(scope="module")
def fitted(small_toy, examples, state_of):
    """Return f(progress, meter): a fit of a fresh toy."""

    def run(progress=None, meter=None):
        backend = small_toy(1)
        return fit(backend, state_of(backend), examples, PLAN, RUNTIME, meter, progress)

    return run


@pytest.fixture
def killed_at(monkeypatch):
    """Return f(step): kills the fit when it begins a step; the list of steps that began."""
    begun = []
    original = Stepper.step

    def at(step=None):
        begun.clear()

        def counted(self, *arguments):
            if self.taken == step:
                raise Killed
            begun.append(self.taken)
            return original(self, *arguments)

        monkeypatch.setattr(Stepper, "step", counted)
        return begun

    return at


@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_killed_fit_ends_in_the_same_bits_and_repeats_no_kept_step(
    fitted, killed_at, tmp_path, step
):
    """C70: the state is compared with that of an uninterrupted fit, bit for bit."""
    whole = fitted()
    kept = tmp_path / "area" / "kept"
    killed_at(step)
    with pytest.raises(Killed):
        fitted(Progress(kept, "stamp", 0.0))
    begun = killed_at()
    done = fitted(Progress(kept, "stamp", 0.0))
    assert begun == list(range(step, STEPS))
    assert done.state.digest() == whole.state.digest()
    assert done.state.counters == whole.state.counters
    assert done.rows == whole.rows
    for kind, tensors in whole.state.moments.tensors.items():
        assert all(done.state.moments.tensors[kind][n].equal(t) for n, t in tensors.items())


def test_a_fit_that_keeps_seldom_repeats_what_came_since(fitted, killed_at, tmp_path):
    killed_at(5)
    with pytest.raises(Killed):
        fitted(Progress(tmp_path / "kept", "stamp", 3600.0))
    begun = killed_at()
    fitted(Progress(tmp_path / "kept", "stamp", 3600.0))
    assert begun == list(range(STEPS))


def test_a_kept_budget_counts_on(fitted, killed_at, tmp_path):
    budget = BudgetSpec(axis="selected_training_tokens", limit=200)
    whole = fitted(meter=Meter(budget))
    killed_at(2)
    with pytest.raises(Killed):
        fitted(Progress(tmp_path / "kept", "stamp", 0.0), Meter(budget))
    killed_at()
    meter = Meter(budget)
    done = fitted(Progress(tmp_path / "kept", "stamp", 0.0), meter)
    assert (done.rows, done.state.digest()) == (whole.rows, whole.state.digest())
    assert (meter.actual, meter.left) == (200, 0)


# ---------------------------------------------------------------- refusals


def test_progress_of_other_code_or_sizes_is_not_gone_on_from(fitted, killed_at, tmp_path, caplog):
    killed_at(4)
    with pytest.raises(Killed):
        fitted(Progress(tmp_path / "kept", "one", 0.0))
    begun = killed_at()
    with caplog.at_level(logging.WARNING):
        fitted(Progress(tmp_path / "kept", "another", 3600.0))
    assert begun == list(range(STEPS))
    assert "starts over" in caplog.text
    assert not (tmp_path / "kept").exists()


@pytest.fixture(scope="module")
def kept_after_three(fitted, tmp_path_factory):
    """The directory of a fit that was killed at its fourth step."""
    directory = tmp_path_factory.mktemp("area") / "kept"
    with pytest.MonkeyPatch.context() as patch:
        original = Stepper.step

        def step(self, *arguments):
            if self.taken == 3:
                raise Killed
            return original(self, *arguments)

        patch.setattr(Stepper, "step", step)
        with pytest.raises(Killed):
            fitted(Progress(directory, "stamp", 0.0))
    return directory


@pytest.mark.parametrize("name", [TRAINABLE, OPTIMIZER, STATE, PLACE, "rows.jsonl"])
@given(st.data())
@settings(deadline=None)
def test_damaged_progress_is_thrown_away_and_never_trusted(
    kept_after_three, tmp_path_factory, name, data
):
    kept = tmp_path_factory.mktemp("area") / "kept"
    shutil.copytree(kept_after_three, kept)
    file = kept / "3" / name
    blob = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(blob) - 2))
    whole = data.draw(st.booleans())
    blob[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(blob if whole else blob[:place])
    if Progress(kept, "stamp", 0.0).last() is None:
        assert not kept.exists()
    else:  # white space of the one file that is read as text
        assert name == PLACE
        same = [json.loads((root / "3" / PLACE).read_text()) for root in (kept, kept_after_three)]
        assert same[0] == same[1]


def test_a_state_that_was_being_kept_when_power_was_lost_is_not_read(fitted, killed_at, tmp_path):
    killed_at(3)
    with pytest.raises(Killed):
        fitted(Progress(tmp_path / "kept", "stamp", 0.0))
    [newest] = (tmp_path / "kept").iterdir()
    newest.rename(newest.with_name("9.part"))
    assert Progress(tmp_path / "kept", "stamp", 0.0).last() is None


def test_only_the_newest_state_is_kept(fitted, tmp_path):
    fitted(Progress(tmp_path / "kept", "stamp", 0.0))
    [newest] = (tmp_path / "kept").iterdir()
    assert json.loads((newest / PLACE).read_text())["place"]["steps"] == STEPS
