"""Episodes written by hand and toy models to read them, for scoring and training."""

import random
from pathlib import Path

import pytest
import torch
from transformers.utils.chat_template_utils import render_jinja_template

from core.models.chat_template import TokenizerTemplate
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe import steps
from core.recipe.loading import load_text
from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher.scorer import score
from core.training.state import initial_state
from core.trajectory.spans import Span
from core.trajectory.trajectory import Trajectory

RECIPE = """\
models:
  student: {model_id: toy-student}
  teacher: {model_id: toy-teacher}
environment: {name: calculator}
"""
SIZE = ToyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_position_embeddings=96
)
CODEC = ToyTokenizer()
TEMPLATES = Path(__file__).with_name("chat_templates")
KEYS = {"assistant_text": "gen:{}:text", "tool_result": "obs:{}"}
MODEL = ("assistant_text", "assistant_tool_call", "assistant_final")


def _spans(parts):
    """Lay (type, length) out one after the other; a tool's result ends a turn."""
    spans, start, turn = [], 0, 0
    for kind, length in parts:
        key = {"system": "sys", "user": "user"}.get(kind) or KEYS.get(kind, "gen:{}:block")
        own = None if kind in ("system", "user") else turn
        spans.append(
            Span(span_type=kind, start=start, end=start + length, segment_key=key.format(turn),
                 turn_id=own)
        )  # fmt: skip
        start += length
        turn += kind == "tool_result"
    return spans


@torch.no_grad()
def _log_probs(backend, episode):
    ids_BT = torch.tensor([episode.token_ids])
    hidden_BTH = backend.hidden_states(ids_BT, torch.tensor([ids_BT.shape[1]]))
    log_probs_TV = backend.project(hidden_BTH[0]).log_softmax(-1)
    return [float(log_probs_TV[j - 1, ids_BT[0, j]]) for j in episode.target_positions()]


class TemplatedToy(ToyTokenizer):
    """The toy tokenizer as if it had come with a chat template."""

    control_texts = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")

    def __init__(self, name, eos_ids=(2,)):
        super().__init__()
        source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")
        self.chat_template = TokenizerTemplate(Rendering(source))
        self.eos_ids = eos_ids


class Rendering:
    """What our code asks of a tokenizer of transformers, without one."""

    def __init__(self, source):
        self.chat_template = source

    def get_chat_template(self, *, tools):
        return self.chat_template

    def apply_chat_template(self, messages, *, tools, chat_template, tokenize, **flags):
        assert not tokenize
        texts, _ = render_jinja_template(
            conversations=[messages], tools=tools, chat_template=chat_template, **flags
        )
        return texts[0]


@pytest.fixture(scope="session")
def templated():
    """Return f(name): a toy codec with a chat template of tests/core/chat_templates."""
    return TemplatedToy


@pytest.fixture(scope="session")
def write_episode():
    """Return f(parts, …): a trajectory of (span type, number of tokens) with random ids.

    Its log-probabilities are ``sampler``'s, or random ones.
    """

    def write(parts, seed=0, *, trajectory_id="t0", token_ids=None, sampler=None, **changes):
        rng = random.Random(seed)
        spans = _spans(parts)
        sampled = sum(span.end - span.start for span in spans if span.is_model)
        verdict = {"solved": False, "reward": 0.0, "failure_category": "wrong_answer"}
        fields = {
            "trajectory_id": trajectory_id,
            "task_id": "task",
            "environment": "calculator",
            "token_ids": token_ids
            or [rng.randrange(10, CODEC.vocab_size) for _ in range(spans[-1].end)],
            "spans": spans,
            "logprobs": [-rng.uniform(0.1, 4.0) for _ in range(sampled)],
            "tokenizer_digest": CODEC.digest,
            "verification": verdict,
            "termination_reason": "max_turns",
            "metadata": {"temperature": 1.0},
            **changes,
        }
        written = Trajectory(**fields)
        if sampler is None:
            return written
        return written.model_copy(update={"logprobs": _log_probs(sampler, written)})

    return write


@pytest.fixture(scope="session")
def small_toy():
    """Return f(seed): a toy of one layer."""

    def build(seed, **options):
        return ToyBackend(SIZE, seed, CODEC, **options)

    return build


@pytest.fixture(scope="session")
def specs_of():
    """Return f(overrides): score and update spec of a small recipe."""

    def build(*overrides):
        recipe = load_text(RECIPE, overrides).recipe
        return steps.score_spec(recipe), steps.update_spec(recipe, 0)

    return build


@pytest.fixture(scope="session")
def scored_by(specs_of):
    """Return f(teacher, episodes, overrides): targets, the update's spec, runtime."""

    def ask(teacher, episodes, *overrides, chunk_size=256, batch_size=8, views=None):
        runtime = Runtime(chunk_size=chunk_size, trajectory_batch_size=batch_size)
        asked, update = specs_of(*overrides)
        chosen = [select_positions(one, asked.selection, 0) for one in episodes]
        scored = score(teacher, episodes, chosen, asked, runtime, teacher_digest="t",
                       teacher_views=views)  # fmt: skip
        return scored, update, runtime

    return ask


@pytest.fixture(scope="session")
def state_of():
    """Return f(backend): where training of a fresh model starts."""
    return initial_state
