"""What the steps that make models need to know of a recipe: specs of weights and tokenizers."""

from core.recipe.adoption_spec import AdoptionSpec
from core.recipe.plugin_specs import named_plugin_spec
from core.recipe.recipe import Recipe
from core.recipe.schema.adapters import Lora
from core.recipe.schema.models import Model, Reference, Student, Teacher
from core.recipe.specs import (
    LoraSpec,
    ModelSpec,
    StudentSpec,
    TeacherSpec,
    TokenizerSpec,
    ToyFitSpec,
    ToySizeSpec,
)

TOY_FIT_BETAS = (0.9, 0.95)


def tokenizer_spec(recipe: Recipe, model: Model) -> TokenizerSpec:
    """Return the tokenizer of one model; a toy teacher may have one of its own."""
    if recipe.models.backend == "toy":
        named = recipe.models.toy_vocabulary
        if getattr(model, "toy_vocabulary", "first") == "second":
            named = "second"
        vocabulary = None if named == "calculator" else named
        return TokenizerSpec(backend="toy", tokenizer_id=None, revision=None, vocabulary=vocabulary)
    return TokenizerSpec(
        backend="hf",
        tokenizer_id=model.tokenizer_id or model.model_id,
        revision=model.tokenizer_revision or model.revision,
        trust_remote_code=model.trust_remote_code or None,
    )


def model_spec(recipe: Recipe, model: Student | Teacher | Reference) -> ModelSpec:
    """Return the weights and arithmetic of one model."""
    toy = recipe.models.backend == "toy"
    storage = None if model.quantization == "none" else model.quantization
    return ModelSpec(
        backend=recipe.models.backend,
        toy=ToySizeSpec(**model.toy.model_dump()) if toy else None,
        model_id=None if toy else model.model_id,
        revision=None if toy else model.revision,
        dtype=model.dtype,
        attn_implementation=None if toy else model.attn_implementation,
        tokenizer=tokenizer_spec(recipe, model),
        quantization=storage,
        prepare_kbit_training=model.prepare_kbit_training if storage else None,
        adapter=model.adapter.path if model.adapter is not None else None,
    )


def teacher_spec(recipe: Recipe) -> TeacherSpec:
    """Return what the teacher's weights depend on, besides the traces it is fitted on."""
    teacher = recipe.models.teacher
    if teacher.plugin is not None:
        return TeacherSpec(model=None, fit=None, plugin=named_plugin_spec(teacher.plugin))
    fit = ToyFitSpec(
        seed=teacher.toy_teacher_seed,
        steps=teacher.toy_pretrain_steps,
        learning_rate=teacher.toy_pretrain_lr,
        batch_size=teacher.toy_pretrain_batch_size or recipe.train.gradient_accumulation_steps,
        betas=TOY_FIT_BETAS,
    )
    toy = recipe.models.backend == "toy"
    return TeacherSpec(model=model_spec(recipe, teacher), fit=fit if toy else None)


def reference_spec(recipe: Recipe) -> ModelSpec | None:
    """Return the frozen third model, or None where there is none."""
    reference = recipe.models.reference
    return None if reference is None else model_spec(recipe, reference)


def adoption_spec(recipe: Recipe) -> AdoptionSpec | None:
    """Return which student of another run this one goes on from, or None where it starts anew."""
    if recipe.run.start is None:
        return None
    own = student_spec(recipe)
    return AdoptionSpec(digest=recipe.run.start, model=own.model, lora=own.lora)


def student_spec(recipe: Recipe) -> StudentSpec:
    """Return what the untrained student depends on.

    A disabled adapter means that every weight is trained, and then its other settings mean nothing.
    """
    lora = recipe.models.student.lora
    pretrained = recipe.models.backend == "hf"
    trained = lora if lora.enabled else Lora(enabled=False)
    return StudentSpec(
        model=model_spec(recipe, recipe.models.student),
        lora=LoraSpec(**trained.model_dump()) if pretrained else None,
        seed=recipe.run.seed,
    )
