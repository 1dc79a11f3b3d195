"""The built-in worlds keep the contract; each planted fault is found and named."""

from pathlib import Path

import pytest

from core.environments import starter
from core.environments.conformance import CHECKS, check_environment
from core.environments.plugins import choose_environment
from core.environments.registry import BUILT_IN
from core.errors import InputError

SOURCE = Path(starter.__file__).read_text(encoding="utf-8")

FAULTS = {
    "tasks depend on the order of hashes": (
        "other_process",
        'rng = Random(f"starter:{seed}:{difficulty}:{index}")',
        'rng = Random(hash(f"starter:{seed}:{difficulty}:{index}"))',
        "PYTHONHASHSEED",
    ),
    "tasks depend on a global counter": (
        "determinism",
        'rng = Random(f"starter:{seed}:{difficulty}:{index}")',
        "ITEMS_DRAWN.append(index); rng = Random(len(ITEMS_DRAWN))",
        "differs when it is generated again",
    ),
    "splits share what the student reads": (
        "splits",
        "    def begin(self, task: Task) -> None:",
        "    def reset(self, task: Task) -> Observation:\n"
        "        shown = super().reset(task)\n"
        "        return Observation(shown.text.partition(':')[2], shown.state_id)\n\n"
        "    def begin(self, task: Task) -> None:",
        "share the prompt",
    ),
    "there are too few prompts": (
        "splits",
        "shop = rng.randrange(100_000)",
        "rng = Random(1); shop = 1",
        "fresh easy prompts",
    ),
    "the oracle is wrong": (
        "oracle",
        "return [*calls, OracleFinal(task.answer)]",
        "return [*calls, OracleFinal(task.answer + '0')]",
        "wrong_answer",
    ),
    "the oracle calls a tool as no schema allows": (
        "oracle",
        'ToolCall("price", {"item": item})',
        'ToolCall("price", {"name": item})',
        "does not fit the schema: 'item' is a required property",
    ),
    "the oracle never answers": (
        "oracle",
        "return [*calls, OracleFinal(task.answer)]",
        "return list(calls)",
        "must end in one OracleFinal",
    ),
    "the verifier raises on odd numbers": (
        "verifier",
        "    def final_answer_example",
        "    def judge(self, task, answer):\n"
        "        wrong = int(answer.replace(',', '') or '0') - int(task.answer)\n"
        "        return FailureCategory('wrong_answer' if wrong else 'solved'), answer\n\n"
        "    def final_answer_example",
        "raises ValueError",
    ),
    "the verifier accepts anything": (
        "verifier",
        "    def final_answer_example",
        "    def judge(self, task, answer):\n"
        "        return FailureCategory.SOLVED, answer\n\n"
        "    def final_answer_example",
        "is blank and accepted",
    ),
    "resets are not repeatable": (
        "reset",
        "    def begin(self, task: Task) -> None:",
        "    def reset(self, task: Task) -> Observation:\n"
        "        self._again = getattr(self, '_again', '') + ' '\n"
        "        shown = super().reset(task)\n"
        "        return Observation(shown.text + self._again, shown.state_id)\n\n"
        "    def begin(self, task: Task) -> None:",
        "in an instance that was used",
    ),
    "an episode changes the next one": (
        "isolation",
        "        return str(self._stock[item])",
        "        self._asked = getattr(self, '_asked', 0) + 1\n"
        "        return str(self._stock[item]) if self._asked < 8 else '0'",
        "in an instance that played before",
    ),
    "episodes side by side share state": (
        "isolation",
        "        self._stock = _prices(task.metadata",
        "        type(self)._stock = _prices(task.metadata",
        "state is shared",
    ),
    "an unknown tool raises": (
        "refusals",
        "    def begin(self, task: Task) -> None:",
        "    def step(self, call):\n"
        "        self.tools()[call.name]\n"
        "        return super().step(call)\n\n"
        "    def begin(self, task: Task) -> None:",
        "raises KeyError",
    ),
    "an odd argument raises": (
        "refusals",
        'item = text_argument(arguments, "item")',
        'item = arguments["item"]',
        "raises",
    ),
    "looking changes the state": (
        "state_ids",
        "    def final_answer_example",
        "    def verify(self, answer):\n"
        "        self._steps += 1\n"
        "        return super().verify(answer)\n\n"
        "    def final_answer_example",
        "changes the state id",
    ),
    "a schema is no schema": (
        "tool_specs",
        'Argument("string"',
        'Argument("text"',
        "no valid JSON schema",
    ),
    "a prompt is blank": (
        "prompts",
        'prompt=f"Shop {shop}: what does {wanted} cost?"',
        'prompt=" " * (index + 1)',
        "is blank",
    ),
    "the student reads the hint": (
        "privileged_context",
        'prompt=f"Shop {shop}: what does {wanted} cost?"',
        'prompt=f"Shop {shop}: {wanted}? The right total is {total}."',
        "the student reads the hint",
    ),
}


def planted(tmp_path, old, new):
    assert old in SOURCE
    total = "        total = sum(prices[item] * count for item, count in basket.items())\n"
    source = SOURCE.replace(old, new).replace("        wanted =", f"{total}        wanted =")
    source = source.replace("    OracleAction,", "    FailureCategory, Observation, OracleAction,")
    path = tmp_path / "faulty.py"
    path.write_text(source + "\n\nITEMS_DRAWN: list[int] = []\n")
    return check_environment(choose_environment(str(path)))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_environment_keeps_the_contract(name):
    done = check_environment(choose_environment(name))
    assert [finding for finding in done.findings if not finding.passed] == []
    assert [finding.check for finding in done.findings] == list(CHECKS)
    assert done.difficulties == ("easy", "medium", "hard")


@pytest.mark.parametrize(
    "params", [{"prompt_style": "compact"}, {"protocol_version": "v2"}], ids=str
)
def test_parameters_reach_the_environment_that_is_checked(params):
    assert check_environment(choose_environment("calculator", params)).passed


def test_the_starter_keeps_the_contract(tmp_path):
    assert planted(tmp_path, "ITEMS", "ITEMS").passed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(tmp_path, fault):
    check, old, new, reason = FAULTS[fault]
    done = planted(tmp_path, old, new)
    found = {finding.check: finding for finding in done.findings}
    assert not done.passed
    assert not found[check].passed
    assert reason in " ".join(found[check].reasons)


def test_an_environment_may_print(tmp_path):
    assert planted(tmp_path, "ITEMS = (", "print('open'); ITEMS = (").passed


@pytest.mark.parametrize(
    ("check", "method", "reason"),
    [
        ("refusals", "def tool_limits(self, tool): return {'price': None}[tool]", "KeyError"),
        ("refusals", "def tool_limits(self, tool): return None", "not ToolLimits"),
        ("determinism", "def trajectory_metadata(self, task): return {'at': object}", "JSON"),
    ],
)
def test_what_only_a_run_asks_for_is_tried_too(tmp_path, check, method, reason):
    done = planted(tmp_path, "    def begin(", f"    {method}\n\n    def begin(")
    found = {finding.check: finding for finding in done.findings}
    assert reason in " ".join(found[check].reasons)


def test_an_answer_in_the_prompt_is_a_warning_alone(tmp_path):
    old = 'prompt=f"Shop {shop}: what does {wanted} cost?"'
    done = planted(tmp_path, old, 'prompt=f"Shop {shop}: {wanted}, is it {total}?"')
    assert done.passed
    (warning,) = [finding for finding in done.findings if not finding.passed]
    assert warning.check == "answer_hidden"
    assert warning.reasons[0].startswith("100% of the prompts hold their own answer")


def test_what_an_environment_raises_is_found_with_its_line(tmp_path):
    done = planted(tmp_path, "calls = [ToolCall", "1 / 0; calls = [ToolCall")
    found = {finding.check: finding for finding in done.findings}
    line = next(n for n, text in enumerate(SOURCE.splitlines(), start=1) if "calls = [Tool" in text)
    expected = f"raised ZeroDivisionError: division by zero at faulty.py:{line + 1}"
    assert found["oracle"].reasons == (expected,)


def test_an_environment_may_refuse_a_difficulty_but_not_all(tmp_path):
    refuse = "        if difficulty != 'hard': raise InputError('only hard', 'Ask for hard.')\n"
    start = '        rng = Random(f"starter:{seed}:'
    imported = "from core.errors import ToolEnvironmentError"
    source = SOURCE.replace(start, refuse + start).replace(
        imported, "from core.errors import InputError, ToolEnvironmentError"
    )
    path = tmp_path / "hard.py"
    path.write_text(source)
    assert check_environment(choose_environment(str(path))).difficulties == ("hard",)
    path.write_text(source.replace("if difficulty != 'hard'", "if True"))
    with pytest.raises(InputError, match="only hard"):
        check_environment(choose_environment(str(path)))


def test_the_outcome_is_one_json_document():
    document = check_environment(choose_environment("calculator")).as_document()
    assert document["passed"] is True
    assert {"check", "passed", "reasons", "warning"} == document["checks"][0].keys()
