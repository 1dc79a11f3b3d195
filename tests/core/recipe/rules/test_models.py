import pytest

from core.recipe.rules import models

TEACHER_ADAPTER = "models.teacher.adapter.path=a"
PARQUET = ("source.kind=verl_parquet", "source.train_files=[t]", "source.val_files=[v]")
ANSWERED = (*PARQUET[:2], "source.answer_key=a")
SHARED = (
    "models.backend=hf",
    "models.runtime=shared_backbone",
    "models.student.model_id=base",
    "models.teacher.model_id=base",
    TEACHER_ADAPTER,
)


def keys(problems) -> list[str]:
    return [".".join(each.path) for each in problems]


@pytest.mark.parametrize("role", ["student", "teacher"])
@pytest.mark.parametrize(("width", "heads", "instead"), [(50, 3, 48), (60, 4, 56), (8, 8, 16)])
def test_each_head_has_an_even_number_of_channels(judged, role, width, heads, instead):
    toy = f"models.{role}.toy"
    given = (f"{toy}.hidden_size={width}", f"{toy}.num_heads={heads}")
    found = judged(models.head_width_is_even, *given)
    assert keys(found) == [f"{toy}.hidden_size"]
    assert f"twice {toy}.num_heads ({heads})" in found[0].what
    assert f"Use {instead} or" in found[0].hint
    assert judged(models.head_width_is_even, *given, f"{toy}.hidden_size={instead}") == []


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_quantised_student_without_lora(judged, quantization):
    chosen = f"models.student.quantization={quantization}"
    rule = models.quantised_student_needs_lora
    assert keys(judged(rule, chosen, "models.student.lora.enabled=false")) == [
        "models.student.quantization"
    ]
    assert judged(rule, chosen) == []


@pytest.mark.parametrize("role", ["student", "teacher"])
def test_hub_adapter_without_revision(judged, role):
    adapter = f"models.{role}.adapter"
    given = (
        f"{adapter}.path=a",
        f"{adapter}.source=hub",
        f"{adapter}.base_model_revision=b",
        f"{adapter}.tokenizer_fingerprint=c",
    )
    rule = models.hub_adapter_needs_revision
    assert keys(judged(rule, *given)) == [f"{adapter}.revision"]
    assert judged(rule, *given, f"{adapter}.revision=d") == []


@pytest.mark.parametrize("name", models.MINIMA)
def test_minimum_without_required_evaluation(judged, name):
    given = (TEACHER_ADAPTER, f"models.teacher.adapter.{name}=0.5")
    rule = models.minima_need_an_evaluation
    assert keys(judged(rule, *given)) == [f"models.teacher.adapter.{name}"]
    demanded = "models.teacher.adapter.require_policy_evaluation=true"
    assert judged(rule, *given, demanded) == []


def test_reference_on_two_models(judged):
    rule, given = models.reference_needs_shared_backbone, "models.reference.model_id=a"
    assert keys(judged(rule, given)) == ["models.reference"]
    assert judged(rule, given, "models.runtime=shared_backbone") == []


@pytest.mark.parametrize(
    "start",
    [
        (
            "models.student.adapter.path=a",
            "models.student.adapter.base_model_revision=b",
            "models.student.adapter.tokenizer_fingerprint=c",
        ),
        (f"run.start={'a' * 64}",),
    ],
)
def test_the_reference_of_a_warm_student_is_named(judged, start):
    """C55: the base with its adapter switched off is not what such a student started from."""
    rule, given = models.reference_names_its_adapter, "models.reference.model_id=a"
    adapter = "models.reference.adapter"
    assert judged(rule, given) == judged(rule, *start) == []
    assert keys(judged(rule, given, *start)) == [adapter]
    named = (f"{adapter}.path=a", f"{adapter}.base_model_revision=b",
             f"{adapter}.tokenizer_fingerprint=c")  # fmt: skip
    assert judged(rule, given, *named, *start) == []


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("models.backend=toy", "models.backend"),
        ("models.student.lora.enabled=false", "models.student.lora.enabled"),
        ("models.student.lora.bias=all", "models.student.lora.bias"),
        ("models.teacher.adapter=null", "models.teacher.adapter"),
        ("memory.strategy=swap", "runtime.memory_strategy"),
    ],
)
def test_shared_backbone_needs_an_adapter_per_role(judged, override, key):
    rule = models.shared_backbone_needs_adapters
    assert judged(rule, *SHARED) == []
    assert keys(judged(rule, *SHARED, override)) == [key]


@pytest.mark.parametrize(
    "override",
    [
        "model_id=other",
        "revision=r",
        "tokenizer_id=t",
        "tokenizer_revision=r",
        "dtype=bfloat16",
        "quantization=nf4",
        "attn_implementation=eager",
        "prepare_kbit_training=false",
        "trust_remote_code=true",
    ],
)
def test_shared_backbone_is_one_model_in_all_but_the_adapter(judged, override):
    rule = models.shared_backbone_is_one_model
    assert judged(rule, *SHARED) == []
    key = f"models.teacher.{override.split('=')[0]}"
    assert keys(judged(rule, *SHARED, f"models.teacher.{override}")) == [key]


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("models.student.quantization=nf4", "models.student.quantization"),
        ("models.teacher.quantization=int8", "models.teacher.quantization"),
        (TEACHER_ADAPTER, "models.teacher.adapter"),
        ("models.student.dtype=bfloat16", "models.student.dtype"),
    ],
)
def test_toy_backend_has_neither_quantisation_nor_adapter(judged, override, key):
    rule = models.toy_backend_is_plain
    assert keys(judged(rule, override)) == [key]
    assert judged(rule, override, "models.backend=hf") == []


def test_episode_longer_than_the_toy_can_read(judged):
    rule, given = models.episodes_fit_the_toy, "models.teacher.toy.max_position_embeddings=512"
    assert keys(judged(rule, given)) == ["models.teacher.toy.max_position_embeddings"]
    assert judged(rule, given, "rollout.max_total_tokens=512") == []


def test_the_toy_tokenizer_brings_no_template(judged):
    rule, given = models.toy_has_no_template, "rollout.template=tokenizer"
    assert keys(judged(rule, given)) == ["rollout.template"]
    assert judged(rule, given, "models.backend=hf") == []
    assert judged(rule) == []


def test_refusal_through_the_loader_names_the_keys(refused):
    error = refused("models.student.toy.num_heads=5")
    assert error.message.startswith("minimal.yaml:2: models.student.toy.hidden_size: 64 is not")
    assert "models.student.toy.num_heads (5)" in error.message


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("models.teacher.qualification.tasks=33",), "models.teacher.qualification.tasks"),
        (
            ("models.teacher.qualification.task_offset=32",),
            "models.teacher.qualification.task_offset",
        ),
        (
            (
                "models.teacher.qualification.tasks=1",
                "models.teacher.plugin.name=p",
                "models.teacher.plugin.sha256=" + "0" * 64,
            ),
            "models.teacher.qualification",
        ),
        (
            (*PARQUET, "source.answer_key=null", "models.teacher.qualification.tasks=1"),
            "source.answer_key",
        ),
        ((*ANSWERED, "models.teacher.qualification.tasks=1"), "source.val_files"),
        (
            (*ANSWERED, "models.teacher.qualification.split=test"),
            "models.teacher.qualification.split",
        ),
        (
            (
                *ANSWERED,
                "source.val_files=[v]",
                "models.teacher.mode=privileged_context",
                "models.teacher.qualification.tasks=1",
            ),
            "models.teacher.qualification.split",
        ),
    ],
)
def test_a_gate_that_nothing_can_measure(judged, overrides, key):
    assert keys(judged(models.gate_can_be_measured, *overrides)) == [key]


@pytest.mark.parametrize("overrides", [(), ("models.teacher.qualification.tasks=32",)])
def test_a_gate_on_tasks_that_exist(judged, overrides):
    assert judged(models.gate_can_be_measured, *overrides) == []
