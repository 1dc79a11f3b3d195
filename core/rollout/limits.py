"""When an episode ends, and how its tokens are drawn."""

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class EpisodeLimits:
    """When an episode ends.

    Attributes:
        max_turns: Turns of the student.
        max_new_tokens_per_turn: Tokens that one turn may sample.
        max_total_tokens: Tokens of the transcript, prompt and tool results included, at which
            nothing more is sampled. A tool result that crosses it is still recorded.
        max_parse_errors: Unreadable turns that end the episode; 0 counts as 1.
        max_repeated_calls: Times that one identical call is executed.
    """

    max_turns: int
    max_new_tokens_per_turn: int
    max_total_tokens: int
    max_parse_errors: int = 2
    max_repeated_calls: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "max_parse_errors" else 1
            if getattr(self, field.name) < least:
                raise ValueError(
                    f"{field.name} is {getattr(self, field.name)}, below the least, {least}"
                )

    @classmethod
    def of(cls, spec: Any) -> Self:
        """Return the limits that an object carries in attributes of the same names."""
        return cls(**{field.name: getattr(spec, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class SamplingSpec:
    """The distribution that tokens are drawn from.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token.
        top_p: Keep the smallest set of tokens whose probability reaches it; 1 keeps all.
        top_k: Keep the k most likely tokens; 0 keeps all.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must lie in [0, inf)")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}; it must lie in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must not be below 0")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0

    @property
    def is_truncated(self) -> bool:
        """Whether some tokens cannot be drawn although the model gives them probability."""
        return not self.is_greedy and (self.top_p < 1.0 or self.top_k > 0)

    @classmethod
    def of(cls, spec: Any) -> Self:
        """Return the settings that an object carries in attributes of the same names."""
        return cls(**{field.name: getattr(spec, field.name) for field in fields(cls)})
