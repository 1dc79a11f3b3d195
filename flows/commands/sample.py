"""``opd sample``: talk to the student of a run, with the tools of its environment."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from core.environments.base import Environment, Task
from core.environments.plugins import open_environment
from core.environments.prompt_world import SYSTEM, UNRATED
from core.recipe import steps
from core.recipe.recipe import Recipe
from core.recipe.runtime import PluginFiles
from core.recipe.sources import prompt_source
from core.runs.checkpoints import open_checkpoint
from core.runs.local import read_local
from core.runs.reading import open_run
from core.trajectory.spans import SpanType
from core.trajectory.trajectory import Trajectory
from flows.runs.sources import runtime_at

FRAME = re.compile(r"<\|im_start\|>\w+\n|<\|im_end\|>")
"""Message headers and ends, which a person need not read."""


def sample(
    directory: Path,
    prompts: Iterable[str],
    *,
    temperature: float,
    seed: int,
    model: Path | None = None,
) -> Iterator[str]:
    """Yield the transcript of one episode per prompt.

    Args:
        directory: Of a run.
        prompts: What a user would ask.
        temperature: 0 takes the most likely token.
        seed: Of the draws.
        model: Directory of the base model, where the run came from another machine.

    Raises:
        InputError: It is no run directory, or its checkpoint is gone or altered.
        ModelSourceError: The base model is not at hand.
    """
    from core.models.building import place
    from core.rollout.episodes import run_episodes
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.training.opening import open_weights

    recipe = open_run(directory).recipe()
    origin = open_checkpoint(directory)
    local = read_local(directory)
    files = PluginFiles() if local is None else local.plugins
    backend = open_weights("student", origin, place(runtime_at(directory, model))).backend
    spec = steps.environment_spec(recipe)
    world = open_environment(spec, files.environment)
    for number, prompt in enumerate(prompts):
        *_, episode = run_episodes(
            backend,
            lambda: open_environment(spec, files.environment),
            [_task(recipe, world, prompt)],
            EpisodeLimits.of(steps.limits_spec(recipe)),
            SamplingSpec(temperature=temperature),
            seed=seed,
            trajectory_ids=[f"sample:{number}"],
            policy_version=0,
            model_digest=None,
            slots=1,
            template=recipe.rollout.own_template,
        )
        yield transcript(episode)


def transcript(episode: Trajectory) -> str:
    """Return what was said after the prompt, a paragraph per author."""
    shown = [span for span in episode.spans if span.span_type != SpanType.SYSTEM]
    lines = [f"[{span.span_type.value}] {FRAME.sub('', span.text).strip()}" for span in shown]
    return "\n".join([*lines, f"({episode.termination_reason.value})"])


def _task(recipe: Recipe, world: Environment, prompt: str) -> Task:
    """A task of a user's own, in the world of the first test task: its database, its document.

    Nobody knows the answer to it, so that task's stays, and no verdict means anything.
    """
    section = recipe.environment
    if section is None:
        source = prompt_source(recipe)
        system = {SYSTEM: source.system_prompt or ""} if source is not None else {}
        return Task("sample", prompt, "0", UNRATED, "test", metadata=system)
    host = world.generate_task(
        0, seed=section.split_seed, difficulty=section.difficulty, split="test"
    )
    return replace(host, task_id="sample", prompt=prompt)
