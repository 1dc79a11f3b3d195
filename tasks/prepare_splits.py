"""Splits: the tasks of an environment, prompt-disjoint between train, eval and test."""

from core.recipe.specs import SplitsSpec
from tasks.caching import StepContext, step


@step(kind="splits", version="1")
def prepare_splits(context: StepContext, spec: SplitsSpec) -> dict[str, int]:
    """Write ``train.jsonl``, ``eval.jsonl`` and ``test.jsonl``."""
    from core.environments.base import make_splits
    from core.environments.registry import make_environment
    from core.environments.task_file import write_tasks

    environment = make_environment(spec.environment.name, **spec.environment.params)
    counts = {"train": spec.train, "eval": spec.eval, "test": spec.test}
    splits = make_splits(environment, counts, seed=spec.split_seed, difficulty=spec.difficulty)
    for split, tasks in splits.items():
        write_tasks(context.out / f"{split}.jsonl", tasks)
    return {split: len(tasks) for split, tasks in splits.items()}
