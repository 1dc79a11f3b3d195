"""Keys ``plugin``: code of a user's own, listed by its digest so that other code never runs."""

from pydantic import Field, JsonValue

from core.recipe.schema.section import Section


class Plugin(Section):
    """A file, or an entry point of an installed distribution. Its ``path`` is execution."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the file; or, for a distribution, the digest that ``opd env check`` prints."""
    distribution: str | None = None
    """Installed distribution that has the entry point; null for a file."""
    version: str | None = None
    """Version of that distribution."""


class NamedPlugin(Plugin):
    """A plug-in that no other key names."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Function or class in the file, or the entry point."""
    params: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings that it reads."""
