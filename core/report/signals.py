"""The numbers that say whether a run distilled at all, each with what it means."""

from typing import Any

from core.report.data import Json, ReportData

CANARIES: dict[str, tuple[str, str]] = {
    "checked_trajectories": ("episodes checked", ""),
    "loss": ("loss, nats", ""),
    "loss_with_another_teacher": (
        "loss with another teacher, nats",
        "it differs from the loss by 1e-6 or more",
    ),
    "largest_divergence": ("largest divergence of a position, nats", "above 1e-5"),
    "divergence_from_itself": (
        "largest divergence with the student as its own teacher, nats",
        "at most 1e-5, for objectives that vanish there",
    ),
    "gradient_norm": ("gradient norm", "above 0"),
    "gradient_norm_from_itself": (
        "gradient norm with the student as its own teacher",
        "at most 0.05 of the gradient norm, for objectives that are flat there",
    ),
    "parameters": ("trainable tensors", ""),
    "parameters_without_gradient": ("trainable tensors without a gradient", "none"),
    "frozen_digest": ("digest of what is not trained", "a gradient leaves it as it was"),
    "generation_prompts_differ": (
        "teacher and student begin their turns in different ways",
        "false, or selection.skip_first_tokens leaves those tokens out",
    ),
}
"""Label of each number in ``canaries.json``, and where it is sound."""

DRIFT = ("sampler_drift_mean", "sampler_drift_max")

MEANINGS: dict[str, str] = {
    "sampler_drift_mean": "mean difference between the sampler's and the training pass's "
    "log-probability of a sampled token under the same weights, nats: rounding",
    "sampler_drift_max": "the largest of these differences, nats",
    "reference_kl_mean": "KL(student ‖ reference) before the step, nats per selected token; it is "
    "recorded and never trained on",
    "teacher_queried_position_ratio": "share of the student's tokens that the teacher was asked "
    "about",
    "gate_qualified_trajectories": "episodes that the gate let through",
    "unaligned_bytes": "bytes of the student in no target, because the tokenizers have no common "
    "boundary around them",
    "model_bytes": "bytes that the student wrote",
    "student_mass": "the student's probability of the support; where it falls, top_k is too small",
    "teacher_mass": "the teacher's probability of the support",
    "undecided": "share of positions with a teacher's entropy above the threshold",
    "clamped": "share of positions whose sum was negative and whose gradient verl's clamp loses",
    "overlap_count": "tokens of the support that are in the student's top k too",
    "overlap_token_advantage": "mean of minus the term over those tokens, nats",
    "is_clipped": "share of positions where the clipped branch won",
    "is_clipped_below": "share of positions where the dual clip won",
    "approx_kl": "sampler's minus present log-probability of the token, nats",
    "k1": "sampler's minus teacher's log-probability of the token, nats: minus the advantage",
}
"""What the numbers of a selection and of objectives mean."""


def canary_rows(canaries: Json) -> list[dict[str, Any]]:
    """Return what the canaries found, in the order of the checks; of none, no row."""
    rows = []
    for name, value in sorted(canaries.items(), key=lambda item: _place(item[0])):
        label, sound = CANARIES.get(name, (name.replace("_", " "), ""))
        rows.append({"name": label, "value": _shown(value), "sound": sound})
    return rows


def signal_rows(data: ReportData) -> list[dict[str, Any]]:
    """Return the numbers of the last cycle about its signal; of a run without cycles, no row."""
    if not data.cycles:
        return []
    last = data.cycles[-1]
    diagnostics = last.steps[-1].get("objective_diagnostics", {}) if last.steps else {}
    first = last.steps[0] if last.steps else {}
    compared = {"reference_kl_mean": last.steps[-1].get("reference_kl_mean") if first else None}
    drift = {name: first.get(name) for name in DRIFT}
    found = {**last.selection, **diagnostics, **drift, **compared}
    return [
        {"name": name, "value": found[name], "meaning": meaning}
        for name, meaning in MEANINGS.items()
        if found.get(name) is not None
    ]


def _place(name: str) -> int:
    names = list(CANARIES)
    return names.index(name) if name in names else len(names)


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value[:16] if isinstance(value, str) else value
