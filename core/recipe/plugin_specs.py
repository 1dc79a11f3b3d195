"""What a key knows of a plug-in, and what every part of a key is."""

from pydantic import BaseModel, ConfigDict, JsonValue

from core.recipe.schema.plugin import NamedPlugin, Plugin


class Spec(BaseModel):
    """A frozen part of a key."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class PluginSpec(Spec):
    """Code of a user's own."""

    sha256: str
    """Digest of the file, or of the files of the distribution's package."""
    distribution: str | None
    """Installed distribution; null for a file."""
    version: str | None
    """Its version."""


class NamedPluginSpec(PluginSpec):
    """A plug-in that no other field names."""

    name: str
    """Function or class in the file, or the entry point."""
    params: dict[str, JsonValue]
    """Settings that it reads."""


def plugin_spec(plugin: Plugin | None) -> PluginSpec | None:
    """Return what a key knows of a plug-in; None where there is none."""
    return None if plugin is None else PluginSpec(**plugin.model_dump())


def named_plugin_spec(plugin: NamedPlugin | None) -> NamedPluginSpec | None:
    """Return what a key knows of a plug-in and its settings; None where there is none."""
    return None if plugin is None else NamedPluginSpec(**plugin.model_dump())
