import pytest
import torch

from core.teacher.cut import first_positions

PARTS = [("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3),
         ("assistant_final", 2)]  # fmt: skip
MODES = ("bucketed_topk_tail", "exact_full_vocab", "verl_pg_k1")


@pytest.mark.parametrize("mode", MODES)
def test_a_cut_keeps_the_first_positions_of_each_episode(small_toy, scored_by, write_episode, mode):
    teacher = small_toy(2)
    episodes = [write_episode(PARTS, n, trajectory_id=f"t{n}") for n in range(3)]
    own = ("loss.aggregation=token-mean",) if mode == "verl_pg_k1" else ()
    scored, _, _ = scored_by(teacher, episodes, f"loss.mode={mode}", *own)
    cut = first_positions(scored, [4, 0, 3])
    assert [len(entry.weights) for entry in cut.selected] == [4, 0, 3]
    assert cut.selected[2].target_ids == scored.selected[2].target_ids[:3]
    cpu = torch.device("cpu")
    pair = [each.gather([2], cpu, teacher.project) for each in (scored, cut)]
    whole, left = (vars(pair[0].slice(0, 3)), vars(pair[1]))
    tensors = {name: value for name, value in left.items() if isinstance(value, torch.Tensor)}
    assert tensors
    assert all(torch.equal(whole[name], value) for name, value in tensors.items())


def test_targets_that_fit_are_the_same_object(small_toy, scored_by, write_episode):
    scored, _, _ = scored_by(small_toy(2), [write_episode(PARTS)])
    assert first_positions(scored, [4]) is scored
