import json

import pytest
import torch

from core.errors import AlignmentError, BackendError, StoreError
from core.losses.targets import BucketTargets, ExactTargets, SampledTargets
from core.teacher.targets import ScoredTargets, load_targets

LAYOUT = [("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3)]
KINDS = {
    "bucketed_topk_tail": BucketTargets,
    "exact_full_vocab": ExactTargets,
    "verl_pg_k1": SampledTargets,
}
TOKEN_MEAN = "loss.aggregation=token-mean"
CPU = torch.device("cpu")


@pytest.fixture
def scored(small_toy, write_episode, scored_by):
    """Return f(mode): targets of three episodes."""

    def ask(mode):
        episodes = [write_episode(LAYOUT, n, trajectory_id=f"t{n}") for n in range(3)]
        return scored_by(small_toy(2), episodes, f"loss.mode={mode}", TOKEN_MEAN)[0]

    return ask


@pytest.mark.parametrize("mode", KINDS)
def test_targets_return_bit_by_bit(scored, tmp_path, small_toy, mode):
    saved = scored(mode)
    saved.save(tmp_path)
    loaded = load_targets(tmp_path)
    assert loaded.provenance == saved.provenance
    assert loaded.selected == saved.selected
    project = small_toy(2).project
    ours = loaded.gather([0, 1, 2], CPU, project)
    theirs = saved.gather([0, 1, 2], CPU, project)
    assert isinstance(ours, KINDS[mode])
    for name, tensor in vars(theirs).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(getattr(ours, name), tensor)


@pytest.mark.parametrize("mode", KINDS)
def test_targets_of_some_episodes_come_in_the_order_asked_for(scored, small_toy, mode):
    whole = scored(mode)
    project = small_toy(2).project
    both = whole.gather([2, 0], CPU, project)
    apart = [whole.gather([index], CPU, project) for index in (2, 0)]
    assert len(both) == 4
    for name, tensor in vars(both).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(tensor, torch.cat([getattr(one, name) for one in apart]))


def test_provenance_says_whose_opinion_it_is(scored, tmp_path):
    saved = scored("bucketed_topk_tail")
    saved.save(tmp_path)
    document = json.loads((tmp_path / "targets.json").read_text())
    assert document["provenance"]["teacher_digest"] == "t"
    assert document["provenance"]["temperature"] == 1.0
    assert document["provenance"]["policy_version"] == 0


def test_exact_targets_need_the_teacher_s_head(scored):
    with pytest.raises(BackendError, match="head is not loaded"):
        scored("exact_full_vocab").gather([0], CPU, None)


def test_counts_must_agree(scored):
    whole = scored("verl_pg_k1")
    with pytest.raises(AlignmentError, match="6 positions are selected but 5 were scored"):
        ScoredTargets(whole.provenance, whole.selected, whole.values.slice(0, 5))


def test_a_changed_byte_is_refused(scored, tmp_path):
    scored("verl_pg_k1").save(tmp_path)
    path = tmp_path / "targets.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError):
        load_targets(tmp_path)
