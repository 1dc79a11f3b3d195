"""What the evaluations of a run are called."""

AFTER = {
    "sft": "after SFT",
    "offline_kd": "after offline KD",
    "opd": "after OPD",
    "online_distillation_with_replay": "after online distillation with replay",
}
"""What the last evaluation of each kind of run is called."""


def stage_name(done: int, last: int, mode: str) -> str:
    """Return what an evaluation after ``done`` of ``last`` cycles is called.

    Args:
        done: Cycles done; −1 is before any training, 0 after the supervised part.
        last: Cycles of the run.
        mode: Kind of run, as in ``core.recipe.objective.RunKind``.
    """
    alone = mode == "sft" and last <= 0  # without a cold start of its own
    if done < 0:
        return "before training" if alone else "before cold start"
    if done == 0:
        return "after SFT" if alone else "after cold start"
    return AFTER[mode] if done == last else f"after cycle {done}"
