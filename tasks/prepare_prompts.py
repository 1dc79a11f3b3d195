"""A split from files: rows of prompts as tasks, none of whose prompts the train split has."""

from dataclasses import asdict

from core.artifacts.record import ArtifactRef
from core.recipe.prompt_specs import PromptSplitSpec
from tasks.caching import StepContext, step


@step(kind="splits", version="1")
def prepare_prompts(
    context: StepContext, spec: PromptSplitSpec, train: ArtifactRef | None = None
) -> dict[str, int]:
    """Write ``tasks.jsonl``; the metrics say what became of every row."""
    from core.environments.prompt_world import PromptWorld
    from core.environments.task_file import iterate_tasks, write_tasks
    from core.models.building import build_tokenizer
    from core.models.framing import frame_template
    from core.prompts.places import find_files
    from core.prompts.reading import PromptReader

    known = iterate_tasks(context.path(train) / "tasks.jsonl") if train is not None else ()
    codec = build_tokenizer(spec.tokenizer, context.placement)
    template = frame_template(codec, PromptWorld(), spec.template)
    reader = PromptReader(spec, codec, context.runtime.row_batch_size, known, template)
    paths = find_files(spec.files, context.runtime.data_paths)
    write_tasks(context.out / "tasks.jsonl", reader.tasks(paths))
    return asdict(reader.counts)
