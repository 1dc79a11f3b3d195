"""What the tasks of one split depend on where they are rows of files."""

from typing import Literal

from core.environments.answer_checks import AnswerCheck
from core.recipe.schema.rollout import OwnTemplate
from core.recipe.specs import Spec, TokenizerSpec


class PromptSplitSpec(Spec):
    """Read one split from files of prompts."""

    split: Literal["train", "eval"]
    """Which tasks: those of ``train_files`` or of ``val_files``."""
    files: tuple[str, ...]
    """The files in order, each by the digest of its content."""
    tokenizer: TokenizerSpec
    """What prompts are measured with."""
    prompt_key: str
    """Column of the prompt."""
    allow_plain_string_prompts: bool
    """Read text as a user message."""
    system_prompt: str | None
    """System message of prompts without one; null for an empty one."""
    max_prompt_length: int
    """Longest prompt, tokens."""
    max_response_length: int | None
    """Longest demonstration, tokens; null where there are none."""
    truncation: Literal["error", "left", "right"]
    """What happens to a longer prompt."""
    filter_overlong_prompts: bool
    """Leave longer prompts out."""
    answer_key: str | None
    """Column of the reference answer; null where answers are not judged."""
    answer_marker: str | None
    """Text before the answer in a reference."""
    answer_check: AnswerCheck
    """When an answer is right; a reference must be readable for it."""
    demonstration_key: str | None
    """Column of a response to learn from."""
    privileged_key: str | None
    """Column of a teacher's hint."""
    overlap: Literal["error", "drop"] | None
    """What happens to a prompt that the train split has too; null for the train split."""
    template: OwnTemplate | None = None
    """Frames of the messages that prompts are measured with; null is ChatML."""
