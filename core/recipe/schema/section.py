"""What every section of a recipe has in common: immutable, strict, and explained field by field."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of keys. Unknown keys, quoted numbers, NaN and infinity are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
