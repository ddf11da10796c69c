"""A module imports only from layers below it."""

import ast
from pathlib import Path

import pytest

import latentuq

# From the bottom up. A name is a module or package of latentuq; those on one line may not import
# each other.
LAYERS = [
    ["core"],
    ["data"],
    ["prior"],
    ["forward"],
    ["likelihood"],
    ["problem"],
    ["inference"],
    ["posterior"],
    ["report"],
    ["calibration"],
    ["app"],
    ["survey", "web"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Methods that a person looks for on the value itself. What they do lies in a later room, which they
# import when they are called.
CONVENIENCES = {
    "posterior/posterior.py": {"report"},  # Posterior.report, plot and _repr_html_
    "prior/generative.py": {"report"},  # GenerativePrior.plot
}
ROOT = Path(latentuq.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported_modules(path: Path) -> set[str]:
    """First-level latentuq modules that a file imports, at its top or inside a function."""
    return modules_in(ast.parse(path.read_text()))


def modules_in(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        parts = [name.split(".") for name in names if name.startswith("latentuq.")]
        found |= {part[1] for part in parts if part[1] in LEVEL}
    return found


@pytest.mark.parametrize("name", CONVENIENCES)
def test_conveniences_are_imported_only_when_they_are_called(name):
    """They exist, and nothing of the later room is imported together with the module."""
    path = ROOT / name
    body = ast.parse(path.read_text()).body
    assert CONVENIENCES[name] <= imported_modules(path)
    top = ast.Module([each for each in body if isinstance(each, ast.Import | ast.ImportFrom)], [])
    assert not CONVENIENCES[name] & modules_in(top)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    own = layer_of(path)
    assert own in LEVEL, f"{own} has no place in LAYERS"
    allowed = {own} | CONVENIENCES.get(str(path.relative_to(ROOT)), set())
    upward = {name for name in imported_modules(path) - allowed if LEVEL[name] >= LEVEL[own]}
    assert not upward, f"{path.name} (layer {own}) imports {upward}"
