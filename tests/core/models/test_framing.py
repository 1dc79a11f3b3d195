"""Which template frames a world's episodes."""

import pytest
import torch

from core.environments.registry import make_environment
from core.errors import ChatTemplateError, HistoryRewrittenError
from core.models.framing import frame_template, system_text
from core.models.tokenizer import load_tokenizer
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.trajectory.template import CHATML

WORLD = make_environment("calculator")
SHORT = make_environment("calculator", prompt_style="compact")
TASKS = [
    SHORT.generate_task(index, seed=7, difficulty="medium", split="train") for index in range(6)
]


def test_chatml_is_the_default_and_lists_the_tools_in_words():
    template = frame_template(ToyTokenizer(), WORLD, None)
    assert template is CHATML
    assert system_text(WORLD, template) == WORLD.system_prompt()


@pytest.mark.parametrize("world", [WORLD, SHORT], ids=["full", "compact"])
def test_schemas_reach_the_model_once(templated, world):
    """Through the template where it knows tools, in the system message where it does not."""
    for name, native in (("tools", True), ("plain", False)):
        template = frame_template(templated(name), world, "tokenizer")
        assert template.lists_tools is native
        text = system_text(world, template)
        sys_piece, _ = template.conversation().open(text, "Compute 7 - 3.")
        assert sys_piece.text.count('"name": "convert"') == 1
        assert sys_piece.text.count('"required": ["from_unit", "to_unit", "value"]') == 1
        assert ('"name": "convert"' in text) is not native
        assert "<final>" in text


@pytest.mark.parametrize("name", ["plain", "tools", "thinking", "forgetful"])
def test_templates_that_keep_plain_turns_pass_the_trial(templated, name):
    assert frame_template(templated(name), SHORT, "tokenizer").branches is False


def test_a_template_that_rewrites_plain_turns_fails_the_trial_unless_it_may_branch(templated):
    """C23: an empty thought put before every past turn."""
    with pytest.raises(HistoryRewrittenError, match="at byte"):
        frame_template(templated("injecting"), SHORT, "tokenizer")
    assert frame_template(templated("injecting"), SHORT, "tokenizer_branching").branches


def test_a_tokenizer_without_a_template_is_refused():
    with pytest.raises(ChatTemplateError, match="no chat template"):
        frame_template(ToyTokenizer(), WORLD, "tokenizer")


def test_a_tokenizer_without_the_tags_of_chatml_is_refused_there(templated):
    codec = templated("plain")
    codec.speaks_chatml = False
    with pytest.raises(ChatTemplateError, match="no single tokens"):
        frame_template(codec, WORLD, None)


def test_generation_prompts_can_be_compared(templated):
    """C24: a teacher that is made to think and a student that is not part at the first token."""
    prompts = {
        name: frame_template(templated(name), SHORT, "tokenizer").generation_prompt
        for name in ("plain", "thinking")
    }
    assert prompts["plain"] == CHATML.header("assistant") == "<|im_start|>assistant\n"
    assert prompts["thinking"] == "<|im_start|>assistant\n<think>\n"


def test_the_real_template_gives_the_bytes_of_chatml(smollm2):
    codec = load_tokenizer(smollm2)
    template = frame_template(codec, SHORT, "tokenizer")
    assert not template.lists_tools
    opened = template.conversation().open("s", "u", "p")
    assert opened == CHATML.conversation().open("s", "u", "p")
    assert template.generation_prompt == codec.generation_prompt == CHATML.header("assistant")


def run(backend, tasks, template, slots):
    return run_episodes(
        backend,
        lambda: make_environment("calculator", prompt_style="compact"),
        tasks,
        EpisodeLimits(4, 12, 960, max_parse_errors=4),
        SamplingSpec(),
        seed=5,
        trajectory_ids=[f"{task.task_id}:0" for task in tasks],
        policy_version=7,
        model_digest="ab" * 32,
        slots=slots,
        template=template,
    )


def teacher_forced(backend, row):
    """Log-probabilities of the model's tokens, from one forward pass."""
    ids_BT = torch.tensor([row.token_ids])
    targets = torch.tensor(row.target_positions())
    with torch.no_grad():
        hidden = backend.hidden_states(ids_BT, torch.tensor([ids_BT.shape[1]]))[0, targets - 1]
        log_probs = backend.project(hidden).double().log_softmax(-1)
    return log_probs.gather(1, ids_BT[0, targets][:, None])[:, 0].tolist()


def thoughtful(templated, name, template, tasks=TASKS):
    """Return a toy that has a chat template, and episodes that it sampled."""
    backend = ToyBackend(
        ToyConfig(
            hidden_size=32,
            num_layers=2,
            num_heads=2,
            intermediate_size=48,
            max_position_embeddings=1024,
        ),
        3,
        templated(name),
    )
    return backend, run(backend, tasks, template, slots=4)


def test_episodes_run_on_a_tokenizers_own_template(templated):
    backend, rows = thoughtful(templated, "tools", "tokenizer")
    assert [row.branches for row in rows] == [1] * 6
    for row in rows:
        assert '"name": "convert"' in row.spans[0].text
        logprobs = teacher_forced(backend, row)
        assert row.logprobs == pytest.approx(logprobs, abs=1e-4)


def test_every_branch_is_read_anew_and_sampled_once(templated):
    """C23: where history is rewritten, log-probabilities belong to what the model has read."""
    backend, rows = thoughtful(templated, "injecting", "tokenizer_branching")
    assert len({row.episode_id for row in rows}) == 6
    assert max(row.branches for row in rows) > 2
    for row in rows:
        logprobs = teacher_forced(backend, row)
        assert row.logprobs == pytest.approx(logprobs, abs=1e-4)
    turns = [
        (row.episode_id, span.turn_id)
        for row in rows
        for span in row.spans
        if span.is_model and span.segment_key.endswith("text")
    ]
    assert len(set(turns)) == len(turns)


def test_branches_do_not_depend_on_who_shares_the_batch(templated):
    backend, rows = thoughtful(templated, "injecting", "tokenizer_branching")
    alone = run(backend, TASKS[2:3], "tokenizer_branching", slots=1)
    assert alone == [row for row in rows if row.task_id == TASKS[2].task_id]
