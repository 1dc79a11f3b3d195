"""A tokenizer's own chat template, piece by piece."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.environments.calculator import Calculator
from core.environments.protocol import (
    RESULT_CLOSE,
    RESULT_OPEN,
    parse_turn,
    render_final,
    render_tool_call,
    render_tool_result,
)
from core.errors import ChatTemplateError, HistoryRewrittenError, TrajectoryError
from core.trajectory.chat_template import ChatTemplate
from core.trajectory.transcript import Transcript, turn_text

EOS, END_OF_TEXT = 2, 0
TOOLS = tuple({"type": "function", "function": spec} for spec in Calculator().tool_specs())
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "7 - 3"}}\n</tool_call>'
SPOKEN = {"function": {"name": "calculator", "arguments": {"expression": "7 - 3"}}}
OTHER_CALL = render_tool_call("calculator", {"expression": "7 - 3"})
RESULT = render_tool_result(ok=True, result="4")
THOUGHT = "<think>\nSeven less three.\n</think>\n\n"
FACTS = {
    "trajectory_id": "t",
    "task_id": "calc-train-0",
    "environment": "calculator",
    "verification": {"solved": True, "reward": 1.0, "failure_category": "solved"},
    "termination_reason": "final_answer",
}
UNSHARED = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def template_of(codec, *, branches=False):
    return ChatTemplate(
        codec.chat_template,
        codec,
        TOOLS,
        codec.control_texts,
        (RESULT_OPEN, RESULT_CLOSE),
        branches,
    )


def opened(codec, **options):
    transcript = Transcript(codec, template_of(codec, **options))
    transcript.start("You compute.", "Compute 7 - 3.")
    return transcript


def say(transcript, codec, text, end=()):
    token_ids = [*codec.encode(text), *end]
    logprobs = [-0.01 * (len(transcript.token_ids) + i) for i in range(len(token_ids))]
    transcript.add_generated(token_ids, parse_turn(turn_text(codec, token_ids)), logprobs=logprobs)
    return token_ids


def whole(codec, messages, prompt=True):
    """What the template makes of all messages at once."""
    tools = TOOLS if template_of(codec).lists_tools else ()
    opening = [
        {"role": "system", "content": "You compute."},
        {"role": "user", "content": "Compute 7 - 3."},
    ]
    return codec.chat_template([*opening, *messages], tools, prompt)


def test_a_template_like_chatml_gives_the_bytes_of_chatml(templated):
    codec = templated("plain")
    own, fixed = opened(codec), Transcript(codec)
    fixed.start("You compute.", "Compute 7 - 3.")
    for end in ((), (EOS,)):
        for transcript in (own, fixed):
            say(transcript, codec, OTHER_CALL, end)
            transcript.add_observation(RESULT, tool_call_id="c0")
    assert own.token_ids == fixed.token_ids
    assert own.build(**FACTS).spans == fixed.build(**FACTS).spans
    assert own.system_ids == fixed.system_ids


def test_tools_calls_and_results_are_the_templates(templated):
    codec = templated("tools")
    transcript = opened(codec)
    say(transcript, codec, f"So:\n{CALL}", (EOS,))
    transcript.add_observation([RESULT, RESULT])
    trajectory = transcript.build(**FACTS)
    shown = "".join(json.dumps(tool["function"], ensure_ascii=False) + "\n" for tool in TOOLS)
    assert [span.text for span in trajectory.spans] == [
        f"<|im_start|>system\nYou compute.\n\n# Tools\n{shown}<|im_end|>\n",
        "<|im_start|>user\nCompute 7 - 3.<|im_end|>\n<|im_start|>assistant\n",
        "So:\n",
        f"{CALL}<|im_end|>",
        f"\n<|im_start|>user\n{RESULT}\n{RESULT}<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_several_results_are_one_user_message_where_a_template_knows_no_tools(templated):
    codec = templated("plain")
    transcript = opened(codec)
    say(transcript, codec, OTHER_CALL)
    ids = transcript.add_observation([RESULT, RESULT])
    assert codec.decode(ids) == (
        f"<|im_end|>\n<|im_start|>user\n{RESULT}\n{RESULT}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [span.segment_key for span in transcript.build(**FACTS).spans][-1] == "obs:0"


def test_sampled_ids_stay_although_the_text_has_others(templated):
    codec = templated("tools")
    transcript = opened(codec)
    letters = [token for letter in "tool" for token in codec.encode(letter)]
    assert letters != codec.encode("tool")
    transcript.add_generated(letters, parse_turn("tool"))
    transcript.add_observation(RESULT)
    spoken = next(s for s in transcript.build(**FACTS).spans if s.is_model)
    assert transcript.token_ids[spoken.start : spoken.end] == letters


@pytest.mark.parametrize("name", ["plain", "tools"])
def test_every_id_that_ends_a_turn_ends_it(templated, name):
    """C14: an end token that the template does not write is the model's; the template's follows."""
    codec = templated(name, eos_ids=(END_OF_TEXT, EOS))
    transcript = opened(codec)
    say(transcript, codec, "Well.", (END_OF_TEXT,))
    ids = transcript.add_observation(RESULT)
    assert codec.decode(ids).startswith("<|im_end|>\n<|im_start|>user\n")
    assert codec.decode(transcript.token_ids).count("Well.<|endoftext|><|im_end|>\n") == 1
    say(transcript, codec, "Well.", (EOS,))
    assert codec.decode(transcript.add_observation(RESULT)).startswith("\n<|im_start|>user\n")


def test_a_thought_that_the_template_opens_is_context(templated):
    """C23: tokens of the generation prompt are never the model's."""
    codec = templated("thinking")
    assert template_of(codec).generation_prompt == "<|im_start|>assistant\n<think>\n"
    assert template_of(codec).supplied == "<think>\n"
    transcript = opened(codec)
    said = say(transcript, codec, f"Seven less three.\n</think>\n\n{CALL}", (EOS,))
    transcript.add_observation(RESULT)
    trajectory = transcript.build(**FACTS)
    targets = [trajectory.token_ids[j] for j in trajectory.target_positions()]
    assert targets == said
    assert trajectory.spans[1].text.endswith("<think>\n")
    assert trajectory.spans[-1].text.endswith("<|im_start|>assistant\n<think>\n")


def test_no_context_token_is_trained_whatever_the_template_says_of_masks(templated):
    """C16, C20: masks come from spans; the template has no generation tag."""
    codec = templated("tools")
    transcript = opened(codec)
    said = say(transcript, codec, CALL)
    transcript.add_observation(RESULT)
    said += say(transcript, codec, render_final("4"), (EOS,))
    trajectory = transcript.build(**FACTS)
    assert sum(trajectory.model_mask) == len(said)
    assert [
        t for t, own in zip(trajectory.token_ids, trajectory.model_mask, strict=True) if own
    ] == said


turns = st.lists(
    st.tuples(
        st.one_of(
            st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1, max_size=12),
            st.sampled_from([CALL, OTHER_CALL, f"So:\n{CALL}", f"{CALL}\n", render_final("4")]),
        ),
        st.booleans(),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", ["plain", "tools", "thinking"])
@UNSHARED
@given(turns=turns)
def test_pieces_are_the_whole_byte_for_byte(templated, name, turns):
    codec = templated(name)
    transcript, messages = opened(codec), []
    supplied = "<think>\n" if name == "thinking" else ""
    for text, closes, count in turns:
        say(transcript, codec, text, (EOS,) if closes else ())
        transcript.add_observation([RESULT] * count)
        messages.append({"role": "assistant", "content": supplied + text})
        bare = RESULT.removeprefix(f"{RESULT_OPEN}\n").removesuffix(f"\n{RESULT_CLOSE}")
        if name == "plain":
            messages.append({"role": "user", "content": "\n".join([RESULT] * count)})
        else:
            messages += [{"role": "tool", "content": bare}] * count
        expected = whole(codec, messages)
        assert "".join(span.text for span in transcript.build(**FACTS).spans) == expected
        assert transcript.token_ids == codec.encode(expected)


@pytest.mark.parametrize("name", ["forgetful", "injecting"])
def test_a_rewritten_history_is_a_branch(templated, name):
    codec = templated(name)
    transcript = opened(codec, branches=True)
    texts = (f"{THOUGHT}{CALL}" if name == "forgetful" else CALL, f"{THOUGHT}{render_final('4')}")
    first = say(transcript, codec, texts[0], (EOS,))
    logprobs = [-0.01 * (len(transcript.token_ids) - len(first) + i) for i in range(len(first))]
    read = transcript.add_observation(RESULT)
    assert transcript.num_branches == 2
    assert read == transcript.token_ids
    said = {"role": "assistant", "content": "", "tool_calls": [SPOKEN]}
    answered = whole(codec, [said, {"role": "tool", "content": '{"ok": true, "result": "4"}'}])
    assert codec.decode(read) == answered
    assert read == codec.encode(answered)
    second = say(transcript, codec, texts[1], (EOS,))
    early, late = transcript.build_branches(**FACTS, policy_version=3)
    assert (early.trajectory_id, late.trajectory_id) == ("t:b0", "t")
    assert {row.parent_id for row in (early, late)} == {"t"}
    assert [(row.branch_index, row.branches) for row in (early, late)] == [(0, 2), (1, 2)]
    assert early.logprobs == pytest.approx(logprobs)
    assert late.spans[2].segment_key == "history"
    for row, said in ((early, first), (late, second)):
        assert [row.token_ids[j] for j in row.target_positions()] == said


@UNSHARED
@given(
    turns=st.lists(
        st.tuples(
            st.booleans(), st.booleans(), st.sampled_from([CALL, OTHER_CALL, "Hm.", "Hm.\n"])
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_sampled_token_is_trained_exactly_once(templated, turns):
    codec = templated("forgetful")
    transcript, said, logprobs = opened(codec, branches=True), [], []
    for thinks, closes, text in turns:
        if transcript.num_turns:
            transcript.add_observation(RESULT)
        before = len(transcript.token_ids)
        said += say(transcript, codec, (THOUGHT if thinks else "") + text, (EOS,) if closes else ())
        logprobs += [-0.01 * i for i in range(before, len(transcript.token_ids))]
    rows = transcript.build_branches(**FACTS)
    assert [row.token_ids[j] for row in rows for j in row.target_positions()] == said
    assert [value for row in rows for value in row.logprobs] == pytest.approx(logprobs)
    assert [row.is_whole for row in rows] == [False] * (len(rows) - 1) + [True]
    for row in rows:
        assert "".join(span.text for span in row.spans) == codec.decode(row.token_ids)


def test_a_branch_that_nobody_read_is_left_out(templated):
    codec = templated("forgetful")
    transcript = opened(codec, branches=True)
    say(transcript, codec, THOUGHT + CALL, (EOS,))
    transcript.add_observation(RESULT)
    (only,) = transcript.build_branches(**FACTS)
    assert (only.trajectory_id, only.parent_id, only.branches) == ("t", None, 1)


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("forgetful", THOUGHT + CALL, r"at byte \d+, '.*<think>.* became '.*<tool_call>"),
        ("injecting", CALL, r"at byte \d+, '.*<tool_call>.* became '.*<think>"),
    ],
)
def test_rewriting_is_refused_with_the_bytes(templated, name, text, pattern):
    """C23: earlier think blocks that the template drops, and empty ones that it puts in."""
    codec = templated(name)
    transcript = opened(codec)
    say(transcript, codec, text, (EOS,))
    with pytest.raises(HistoryRewrittenError, match=pattern) as caught:
        transcript.add_observation(RESULT)
    assert "rollout.template=tokenizer_branching" in caught.value.hint


def test_a_system_message_that_moves_is_refused(templated):
    with pytest.raises(ChatTemplateError, match="writes nothing for the system message alone"):
        opened(templated("folding"))


def test_messages_that_grow_together_are_refused_with_their_tokens(templated):
    codec = templated("glued")
    transcript = Transcript(codec, template_of(codec))
    with pytest.raises(ChatTemplateError, match=r"tokens differ from byte 7 on.*'Compute "):
        transcript.start("I will Comp", "ute 7")


@pytest.mark.parametrize("place", ["system", "user", "privileged", "result"])
def test_context_cannot_pose_as_a_frame(templated, place):
    codec = templated("tools")
    texts = {"system": "s", "user": "u", "privileged": "p", "result": "r"}
    texts[place] = "x<|im_end|>"
    transcript = Transcript(codec, template_of(codec))
    with pytest.raises(TrajectoryError, match="control text"):
        transcript.start(texts["system"], texts["user"], texts["privileged"])
        say(transcript, codec, CALL)
        transcript.add_observation(texts["result"])
