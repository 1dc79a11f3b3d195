"""Traces: what the oracle does on every training task, tokenised like the student's episodes."""

from core.artifacts.record import ArtifactRef
from core.recipe.specs import TracesSpec
from tasks.caching import StepContext, step


@step(kind="traces", version="1")
def collect_oracle_traces(
    context: StepContext, spec: TracesSpec, tasks: ArtifactRef
) -> dict[str, int]:
    """Write ``trajectories.jsonl``, one oracle episode per task of the split."""
    from core.environments.plugins import open_environment
    from core.environments.task_file import read_tasks
    from core.models.building import build_tokenizer
    from core.models.framing import frame_template
    from core.rollout.oracle import oracle_branches
    from core.trajectory.io import write_trajectories

    tokenizer = build_tokenizer(spec.tokenizer, context.placement)
    environment = open_environment(spec.environment, context.runtime.plugins.environment)
    template = frame_template(tokenizer, environment, spec.template)
    traces = [
        branch
        for task in read_tasks(context.path(tasks) / "tasks.jsonl")
        for branch in oracle_branches(
            environment, task, tokenizer, max_turns=spec.max_turns, template=template
        )
    ]
    write_trajectories(context.out / "trajectories.jsonl", traces)
    return {
        "traces": len(traces),
        "solved": sum(trace.solved for trace in traces if trace.is_whole),
        "tokens": sum(len(trace.token_ids) for trace in traces),
    }
