"""What a run needs to know of the student of another run that it goes on from."""

from core.recipe.specs import LoraSpec, ModelSpec, Spec


class AdoptionSpec(Spec):
    """A student of another run that this one goes on from."""

    digest: str
    """Content digest of the artifact."""
    model: ModelSpec
    """What it must be a state of."""
    lora: LoraSpec | None
    """Adapter that it must have."""
