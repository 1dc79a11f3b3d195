"""Qwen3-shaped models with random weights, and the whole cycle on them, measured by phase."""

import time
from contextlib import contextmanager

import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.models.building import Placement, build_model
from core.recipe import steps
from core.recipe.loading import load_text
from core.recipe.model_steps import student_spec, teacher_spec
from core.recipe.runtime import Runtime
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.selection.selectors import select_positions
from core.teacher.scorer import score
from core.training.state import initial_state
from core.training.update import update

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
RECIPE = """\
models:
  backend: hf
  student: {{model_id: {student}, quantization: {quantization}, dtype: {dtype}}}
  teacher: {{model_id: {teacher}, dtype: {dtype}}}
environment: {{name: calculator, params: {{prompt_style: compact}}}}
train: {{rollouts_per_cycle: {episodes}, gradient_accumulation_steps: {episodes}}}
"""
NEW_TOKENS = 64
LIMITS = EpisodeLimits(max_turns=1, max_new_tokens_per_turn=NEW_TOKENS, max_total_tokens=1024)


def write_shaped(path, geometry, vocabulary):
    """Write a model directory of a geometry, its weights random and in bfloat16."""
    config = Qwen3Config(vocab_size=vocabulary, **geometry)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng(), torch.device(device):
        model = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)
    generator = torch.Generator(device).manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.02, generator=generator)
    model.save_pretrained(path)
    entries = [*SPECIALS, *sorted(ByteLevel.alphabet())]
    entries += [f"filler{index}" for index in range(vocabulary - len(entries))]
    tokenizer = Tokenizer(BPE(vocab={text: n for n, text in enumerate(entries)}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIALS])
    saved = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    saved.save_pretrained(path)
    return path


@contextmanager
def measured(figures, phase):
    """Note seconds and, on CUDA, the peak of allocated memory of a phase."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    yield
    if cuda:
        torch.cuda.synchronize()
        figures[f"{phase}_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
    figures[f"{phase}_s"] = round(time.perf_counter() - begun, 3)


class Pair:
    """A quantised student and a bfloat16 teacher, with what each phase of a cycle took."""

    def __init__(self, student, teacher, *, episodes, device, quantization, dtype):
        text = RECIPE.format(
            student=student,
            teacher=teacher,
            quantization=quantization,
            dtype=dtype,
            episodes=episodes,
        )
        self.recipe = load_text(text).recipe
        self.figures, self.episodes = {}, episodes
        placement, spec = Placement(device=device), student_spec(self.recipe)
        with measured(self.figures, "load_student"):
            self.student = build_model(spec.model, placement, seed=1, lora=spec.lora)
        with measured(self.figures, "load_teacher"):
            self.teacher = build_model(teacher_spec(self.recipe).model, placement, seed=0)
        world = make_environment("calculator", prompt_style="compact")
        splits = make_splits(world, {"train": episodes}, seed=7, difficulty="easy")
        self.tasks = splits["train"]

    def roll_out(self, slots):
        """Sample the tasks with a number of slots; the model's rows are as many."""
        self.student.physical_rows = slots
        tasks = self.tasks[:slots]
        phase = f"rollout_{slots}"
        with measured(self.figures, phase):
            found = run_episodes(
                self.student,
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
        tokens = sum(len(episode.target_positions()) for episode in found)
        self.figures[f"{phase}_tokens_per_s"] = round(tokens / self.figures[f"{phase}_s"], 2)
        return found

    def learn(self, trajectories):
        """Score the episodes and take one step."""
        runtime, asked = Runtime(), steps.score_spec(self.recipe)
        chosen = [select_positions(one, asked.selection, 0) for one in trajectories]
        with measured(self.figures, "score"):
            scored = score(self.teacher, trajectories, chosen, asked, runtime, teacher_digest="t")
        before, spec = initial_state(self.student), steps.update_spec(self.recipe, 0)
        with measured(self.figures, "update"):
            done = update(
                self.student, before, trajectories, scored, spec, runtime, teacher=self.teacher
            )
        return done.rows[0]


@pytest.fixture(scope="session")
def shaped():
    """Return f(path, geometry, vocabulary): a model directory."""
    return write_shaped


@pytest.fixture(scope="session")
def pair():
    """Return the class of a student and its teacher."""
    return Pair
