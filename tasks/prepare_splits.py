"""A split: tasks of an environment whose prompts no other split has."""

from core.recipe.specs import SplitSpec
from tasks.caching import StepContext, step


@step(kind="splits", version="1")
def prepare_splits(context: StepContext, spec: SplitSpec) -> dict[str, int]:
    """Write ``tasks.jsonl``."""
    from core.environments.base import make_splits
    from core.environments.plugins import open_environment
    from core.environments.task_file import write_tasks

    environment = open_environment(spec.environment, context.runtime.plugins.environment)
    counts = {"train": spec.train, "eval": spec.eval or 0, "test": spec.test or 0}
    splits = make_splits(environment, counts, seed=spec.split_seed, difficulty=spec.difficulty)
    write_tasks(context.out / "tasks.jsonl", splits[spec.split])
    return {"tasks": len(splits[spec.split])}
