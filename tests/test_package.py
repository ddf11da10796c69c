"""What the package promises as a whole."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import latentuq

ROOT = Path(__file__).parents[1]


def python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout


def test_every_public_name_exists():
    for name in latentuq.__all__:
        assert getattr(latentuq, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        latentuq.nonsense  # noqa: B018


def test_import_is_light():
    loaded = python("import sys, latentuq; print(*sys.modules)").split()
    for heavy in ("matplotlib", "rich", "typer", "optax", "scipy.stats", "PIL", "astropy"):
        assert heavy not in loaded


def test_import_takes_less_than_one_and_a_half_times_jax_and_equinox():
    def seconds(statement):
        timed = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        return min(float(python(timed)) for _ in range(3))

    assert seconds("import latentuq") < 1.5 * seconds("import jax, equinox")


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == latentuq.__version__
    assert f"## {latentuq.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/priors.md", "docs/problems.md", "docs/inference.md", "docs/comparison.md"],
)
def test_python_in_the_documents_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), document, "exec"), {})


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")))
def test_links_in_the_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_no_machine_paths_or_registry_hosts():
    files = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml", "*.lock", "Makefile", ".ci/run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    hosts = ["py" + "pi.org", "pythonhosted" + ".org", "npm" + "js.org", "deb.debian" + ".org"]
    places = ["/" + "work/", "/" + "root/", "/tmp" + "/e/"]
    for name in files:
        text = (ROOT / name).read_text()
        for unwanted in hosts + places:
            assert unwanted not in text, f"{name} names {unwanted}"
