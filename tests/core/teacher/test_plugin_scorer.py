"""Targets of a plug-in are those of a model with the same logits, position by position."""

import pytest
import torch

from core.errors import PluginError, TokenizerMismatchError
from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher.plugin_scorer import score_by_plugin
from core.teacher.plugins import PluginTeacher
from core.teacher.scorer import score
from core.teacher.targets import load_targets

PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 3), ("assistant_final", 2)]


class Wrapped(PluginTeacher):
    """Asks a model, so that there is something to compare with."""

    name = "wrapped"

    def __init__(self, backend):
        super().__init__(backend.tokenizer)
        self.backend = backend

    def logits(self, trajectory, positions):
        ids_BT = torch.tensor([trajectory.token_ids])
        hidden_BTH = self.backend.hidden_states(ids_BT, torch.tensor([ids_BT.shape[1]]))
        return self.backend.project(hidden_BTH[0, [position - 1 for position in positions]])


@pytest.fixture
def both(small_toy, write_episode, specs_of):
    """Targets of a model, and of a plug-in around it."""

    def scored(*overrides):
        backend = small_toy(2)
        episodes = [write_episode(TWO_TURNS), write_episode([*PROMPT, ("assistant_text", 3)], 1)]
        spec, _ = specs_of(*overrides)
        chosen = [select_positions(episode, spec.selection, 0) for episode in episodes]
        arguments = (episodes, chosen, spec)
        model = score(backend, *arguments, Runtime(chunk_size=2), teacher_digest="t")
        return model, score_by_plugin(Wrapped(backend), *arguments, teacher_digest="t")

    return scored


def test_top_k_and_tail_are_the_models(both):
    model, own = both("loss.top_k=5", "loss.temperature=2")
    assert own.selected == model.selected
    assert own.provenance == model.provenance
    assert torch.equal(own.values.support_ids_NK, model.values.support_ids_NK)
    for name in ("support_logprobs_NK", "tail_logprob_N", "entropy_N"):
        left, right = getattr(own.values, name), getattr(model.values, name)
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


def test_log_probs_of_sampled_tokens_are_the_models(both, tmp_path):
    model, own = both("loss.mode=verl_pg_k1", "loss.aggregation=token-mean")
    torch.testing.assert_close(
        own.values.teacher_logprobs_N, model.values.teacher_logprobs_N, rtol=1e-5, atol=1e-6
    )
    assert torch.equal(own.values.rollout_logprobs_N, model.values.rollout_logprobs_N)
    own.save(tmp_path)
    assert load_targets(tmp_path).selected == own.selected


def test_an_episode_of_another_tokenizer_is_refused(small_toy, write_episode, specs_of):
    backend, (spec, _) = small_toy(2), specs_of("loss.top_k=5")
    episode = write_episode(TWO_TURNS)
    chosen = [select_positions(episode, spec.selection, 0)]
    other = episode.model_copy(update={"tokenizer_digest": "another"})
    with pytest.raises(TokenizerMismatchError):
        score_by_plugin(Wrapped(backend), [other], chosen, spec, teacher_digest="t")
    broken = Wrapped(backend)
    broken.logits = lambda *_: None
    with pytest.raises(PluginError, match="returns a NoneType"):
        score_by_plugin(broken, [episode], chosen, spec, teacher_digest="t")
