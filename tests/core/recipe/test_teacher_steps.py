import json

import pytest

from core.recipe import steps, teacher_steps
from core.recipe.teacher_specs import EvidenceSpec

GATE = "models.teacher.qualification"


def test_a_gate_measures_what_students_get_on_tasks_of_its_own(accepted):
    plain, own = (
        accepted(*words).recipe
        for words in ((), (f"{GATE}.split=test", f"{GATE}.tasks=5", f"{GATE}.task_offset=2"))
    )
    students = steps.evaluation_spec(plain)
    assert students is not None
    shown = teacher_steps.qualification_spec(plain).model_dump(exclude={"hinted"})
    assert shown == students.model_dump()
    spec = teacher_steps.qualification_spec(own)
    assert (spec.split, spec.tasks, spec.task_offset) == ("test", 5, 2)
    assert teacher_steps.qualification_split(own) == "test"


def test_a_gate_is_measured_where_students_are_not(accepted):
    recipe = accepted("eval.enabled=false", f"{GATE}.tasks=5").recipe
    assert steps.evaluation_spec(recipe) is None
    assert teacher_steps.qualification_spec(recipe).tasks == 5


def test_a_teacher_that_reads_hints_is_measured_with_them(accepted):
    recipe = accepted("models.teacher.mode=privileged_context", f"{GATE}.tasks=5").recipe
    assert teacher_steps.qualification_spec(recipe).hinted


def test_a_gate_changes_no_step_of_the_run(accepted, changed):
    words = [f"{GATE}.split=test", f"{GATE}.minimum_strict_success_rate=0.5"]
    assert changed(accepted().recipe, accepted(*words).recipe) == set()


def test_minima_are_in_no_key(accepted):
    low, high = (
        teacher_steps.qualification_spec(
            accepted(f"{GATE}.minimum_strict_success_rate={rate}").recipe
        )
        for rate in (0.1, 0.9)
    )
    assert low == high


def test_evidence_is_known_by_its_adapter_and_its_rates(accepted):
    words = ("models.backend=hf", "models.teacher.adapter.path=sha256:a")
    recipe = accepted(*words).recipe
    spec = teacher_steps.evidence_spec(recipe, {"rates": {}})
    assert spec.adapter == "sha256:a"
    assert EvidenceSpec.model_validate(json.loads(spec.model_dump_json())) == spec


@pytest.mark.parametrize(
    ("words", "temperature"),
    [((), 1.0), (("rollout.temperature=0.5",), 0.5), (("rollout.temperature=0",), None),
     (("rollout.top_p=0.9",), None), (("rollout.top_k=5",), None)],
)  # fmt: skip
def test_a_sampler_is_compared_where_it_drew_from_the_whole_distribution(
    accepted, words, temperature
):
    spec = teacher_steps.comparison_spec(accepted(*words).recipe)
    assert (spec.temperature, spec.environment) == (temperature, None)


def test_hints_enter_comparison_and_continuations_where_the_teacher_reads_them(accepted):
    hinted = accepted("models.teacher.mode=privileged_context").recipe
    assert teacher_steps.comparison_spec(hinted).environment is not None
    assert teacher_steps.continuation_spec(hinted).hinted
    assert teacher_steps.continuation_spec(accepted().recipe).hinted is None
