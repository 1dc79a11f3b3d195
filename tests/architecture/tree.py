"""The tree in the README, made from the tree on disk: ``python tests/architecture/tree.py``."""

import ast
import re
import textwrap
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "tasks", "flows")
BLOCK = re.compile(r"<!-- tree -->\n```text\n(.*?)```", re.DOTALL)
DATA = {
    "recipes": "experiments as data: one YAML file is one experiment",
    "deployments": "where flows run: pools, the GPU slot, deployments",
    "tests": "mirrors core/, tasks/ and flows/ path for path",
    "docs": "architecture, notation, objectives, caching, recipes, metrics, decisions",
}


def tree() -> str:
    """One paragraph per package: what it is, and its modules."""
    parts = [_package(path) for name in PACKAGES for path in _packages(REPO / name)]
    parts += [f"{name + '/':<22} {words}\n" for name, words in DATA.items()]
    return "".join(parts)


def _packages(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.rglob("__init__.py"))


def _package(path: Path) -> str:
    says = (ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or "").split("\n")[0]
    modules = sorted(p.stem for p in path.glob("*.py") if p.stem != "__init__")
    head = f"{str(path.relative_to(REPO)) + '/':<22} {says}\n"
    indent = " " * 25
    listing = textwrap.fill(" ".join(modules), 98, initial_indent=indent, subsequent_indent=indent)
    return head + (f"{listing}\n" if modules else "")


def in_readme() -> str:
    """The tree that the README shows."""
    found = BLOCK.search((REPO / "README.md").read_text())
    return found.group(1) if found else ""


if __name__ == "__main__":
    readme = REPO / "README.md"
    text = BLOCK.sub(lambda _: f"<!-- tree -->\n```text\n{tree()}```", readme.read_text())
    readme.write_text(text)
