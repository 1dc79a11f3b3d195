"""Which template frames an episode, and what its system message then says."""

from core.environments.base import Environment
from core.environments.prompts import render_schemas
from core.environments.protocol import (
    RESULT_CLOSE,
    RESULT_OPEN,
    parse_turn,
    render_final,
    render_tool_call,
    render_tool_result,
)
from core.errors import ChatTemplateError
from core.recipe.schema.rollout import OwnTemplate
from core.trajectory.chat_template import ChatTemplate
from core.trajectory.template import CHATML, Template
from core.trajectory.tokens import TokenCodec
from core.trajectory.transcript import Transcript, turn_text


def frame_template(
    codec: TokenCodec, environment: Environment, own: OwnTemplate | None
) -> Template:
    """Return the template of a world's episodes.

    A tokenizer's own template is tried on a short conversation first: it must give the same bytes
    and the same tokens piece by piece as at once.

    Args:
        codec: The tokenizer of the student.
        environment: Knows the tools.
        own: Use of the tokenizer's own template; None is ChatML.

    Raises:
        ChatTemplateError: The tokenizer has no template, or has one that cannot be rendered piece
            by piece, or does not know the tags of ChatML.
        HistoryRewrittenError: The template rewrites plain turns, and may not.
    """
    if own is None:
        if not getattr(codec, "speaks_chatml", True):
            raise ChatTemplateError(
                "the tokenizer has no single tokens <|im_start|> and <|im_end|>",
                "Set rollout.template=tokenizer, or use a model that speaks ChatML.",
            )
        return CHATML
    template = tokenizer_template(codec, own)
    if template is None:
        raise ChatTemplateError(
            "the tokenizer has no chat template",
            "Set rollout.template=chatml, or use an instruction-tuned model.",
        )
    tools = [{"type": "function", "function": tool} for tool in environment.tool_specs()]
    template = ChatTemplate(
        template.render,
        codec,
        tuple(tools),
        template.control_texts,
        result_tags=(RESULT_OPEN, RESULT_CLOSE),
        branches=own == "tokenizer_branching",
    )
    _try_out(template, system_text(environment, template))
    return template


def tokenizer_template(codec: TokenCodec, own: OwnTemplate | None) -> ChatTemplate | None:
    """Return a tokenizer's own template without tools; None where it has none or none is wanted."""
    render = getattr(codec, "chat_template", None)
    if own is None or render is None:
        return None
    return ChatTemplate(render, codec, control_texts=getattr(codec, "control_texts", ()))


def system_text(environment: Environment, template: Template) -> str:
    """Return the system message of a world.

    ChatML's lists the tools in words. With a tokenizer's template the message says how a turn is
    written, and the schemas of the tools are shown by the template, or else follow as JSON.
    """
    if not isinstance(template, ChatTemplate) or not environment.tool_specs():
        return environment.system_prompt()
    rules = environment.protocol_prompt()
    if template.lists_tools:
        return rules
    return f"{rules}\n\n{render_schemas(environment.tool_specs())}"


def _try_out(template: ChatTemplate, system: str) -> None:
    """Play a short conversation, with and without sampled ends of turn.

    Raises:
        ChatTemplateError: Pieces and whole differ.
    """
    codec = template.codec
    call = render_tool_call("probe", {"value": 1})
    result = render_tool_result(ok=True, result="1")
    for end in ([], [codec.eos_ids[0]]):
        transcript = Transcript(codec, template)
        transcript.start(system, "Probe.")
        for text in (call, f"Again.\n{call}", render_final("1")):
            token_ids = [*codec.encode(text), *end]
            transcript.add_generated(token_ids, parse_turn(turn_text(codec, token_ids)))
            transcript.add_observation([result, result])
