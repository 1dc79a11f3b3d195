"""The chat template of a Hugging Face tokenizer, as a function from messages to text."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import ChatTemplateError
from core.models.loading import first_line

FIXED_DATE = "26 Jul 2024"
"""What a template reads as today's date: the text of a prompt must not depend on the clock."""


class TokenizerTemplate:
    """Renders messages with a tokenizer's template, in the sandbox of transformers.

    Args:
        tokenizer: A tokenizer of transformers that has a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        prompt: bool,
    ) -> str:
        """Return the text of a conversation.

        Args:
            messages: With ``role`` and ``content``, and ``tool_calls`` of an assistant.
            tools: Schemas in the form ``{"type": "function", "function": …}``.
            prompt: Whether the opening of the assistant's next turn is wanted.

        Raises:
            ChatTemplateError: The template refuses the messages, or asks the clock.
        """
        source = self._tokenizer.get_chat_template(tools=list(tools) or None)
        if "strftime_now" in source and "date_string" not in source:
            raise ChatTemplateError(
                "the chat template writes today's date into every prompt",
                "Set rollout.template=chatml, or give the template a date_string.",
            )
        try:
            return self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=list(tools) or None,
                chat_template=source,
                tokenize=False,
                add_generation_prompt=prompt,
                date_string=FIXED_DATE,
            )
        # A template is a program: it raises whatever its expressions make it raise.
        except Exception as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ChatTemplateError(
                f"the chat template refuses the messages {roles}: {first_line(error)}",
                "Set rollout.template=chatml, or use a model whose template knows these roles.",
            ) from error


def template_of(tokenizer: Any) -> TokenizerTemplate | None:
    """Return the chat template of a tokenizer of transformers, or None if it has none."""
    return TokenizerTemplate(tokenizer) if getattr(tokenizer, "chat_template", None) else None
