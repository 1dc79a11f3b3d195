"""Why a run may end before its last cycle."""

from enum import StrEnum


class StopReason(StrEnum):
    """Which bound a run stayed below, or which budget it has spent."""

    STUDENT_ENTROPY = "student_entropy"
    SUCCESS_RATE = "success_rate"
    SELECTED_TRAINING_TOKENS = "selected_training_tokens"
    GENERATED_TOKENS = "generated_tokens"
    WALL_TIME = "wall_time"


WORDS = {
    StopReason.STUDENT_ENTROPY: "the student's entropy stayed below train.stop_below_entropy",
    StopReason.SUCCESS_RATE: "success stayed below train.stop_below_success",
    StopReason.SELECTED_TRAINING_TOKENS: "train.max_selected_training_tokens is spent",
    StopReason.GENERATED_TOKENS: "train.max_generated_tokens is spent",
    StopReason.WALL_TIME: "train.max_wall_seconds is spent",
}
"""What each reason says to a person."""
