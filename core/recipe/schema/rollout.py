"""Section ``rollout``: limits of an episode, and how tokens are drawn."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.section import Section

OwnTemplate = Literal["tokenizer", "tokenizer_branching"]
"""Uses of the chat template that came with a tokenizer."""


class Rollout(Section):
    """Limits of an episode and the sampling distribution."""

    max_turns: int = Field(default=4, ge=1, le=64)
    """Turns of the student before the episode is cut."""
    max_new_tokens_per_turn: int = Field(default=64, ge=1, le=8192)
    """Tokens that one turn may generate."""
    max_total_tokens: int = Field(default=768, ge=16, le=131_072)
    """Tokens of the whole transcript, prompt and tool results included."""
    temperature: float = Field(default=1.0, ge=0, le=5)
    """Divides the logits before sampling; 0 takes the most likely token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus: smallest set of tokens with this probability; 1 keeps all."""
    top_k: int = Field(default=0, ge=0)
    """Keep the k most likely tokens; 0 keeps all."""
    max_parse_errors: int = Field(default=2, ge=0, le=32)
    """Unreadable turns after which the episode ends."""
    max_repeated_calls: int = Field(default=2, ge=1, le=32)
    """Times that one identical tool call is executed."""
    template: Literal["chatml"] | OwnTemplate = "chatml"
    """Frames of the messages: `chatml`, or the chat template that came with the student's
    tokenizer. Where that changes what the model has already read or written, `tokenizer` refuses
    and `tokenizer_branching` goes on in a trajectory of its own."""

    @property
    def own_template(self) -> OwnTemplate | None:
        """The tokenizer's template, if it is used; None is ChatML."""
        return None if self.template == "chatml" else self.template
