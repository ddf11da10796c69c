"""What the package promises as a whole."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import latentuq
from latentuq.cli.commands import app as latentuq_app
from studies.__main__ import app as studies_app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))
COMMANDS = {
    "latentuq": typer.main.get_command(latentuq_app),
    "python -m studies": typer.main.get_command(studies_app),
}
USAGE_ERROR: Any = typer.BadParameter.__base__


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


@pytest.mark.slow
def test_import_takes_less_than_one_and_a_half_times_jax_and_equinox():
    def seconds(statement):
        timed = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        return min(float(python(timed)) for _ in range(3))

    assert seconds("import latentuq") < 1.5 * seconds("import jax, equinox")


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == latentuq.__version__
    assert f"## {latentuq.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        *(
            f"docs/{name}.md"
            for name in ("priors", "problems", "inference", "comparison", "surveys")
        ),
    ],
)
def test_python_in_the_documents_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), document, "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def commands_of(text: str) -> set[tuple[str, str, bool]]:
    """Programs and words of all commands in a document, and whether they are meant to be run.

    A command inside a sentence may be no more than a name.
    """
    starts = "|".join(COMMANDS)
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    shown = re.findall(rf"^({starts})((?: .*)?)$", blocks, re.MULTILINE)
    named = re.findall(rf"`({starts}) ([^`]+)`", text)
    return {(*each, True) for each in shown} | {(*each, False) for each in named}


def parse(program: str, words: list[str], run: bool) -> None:
    """Reads the words as the command would, up to the point where it would start to work."""
    command: Any = COMMANDS[program]
    name = program
    while words and hasattr(command, "resolve_command"):
        context = command.make_context(name, list(words))
        name, command, words = command.resolve_command(context, words)
    if run or words:
        command.make_context(name, words)


# The changelog names commands of the past.
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_commands_in_the_documents_have_the_flags_that_they_show(document):
    for program, line, run in commands_of(document.read_text()):
        words = shlex.split(line, comments=True)
        if not {"...", "--help", "--list-settings"} & {*words}:
            try:
                parse(program, words, run)
            except USAGE_ERROR as error:
                pytest.fail(f"{program} {line}: {error}")


@pytest.mark.parametrize(
    "line", ["reconstruct y.png --budgt preview", "reconstruct", "bench", "calibrate --seed many"]
)
def test_commands_that_would_not_work_are_noticed(line):
    ((program, words, run),) = commands_of(f"Text\n```sh\nlatentuq {line}  # a comment\n```\n")
    with pytest.raises(USAGE_ERROR):
        parse(program, shlex.split(words, comments=True), run)


def test_nothing_is_ever_unpickled():
    # Who unpickles a file runs whatever its author wrote. (Processes of a pool that send each
    # other pickled messages are another matter, and so is the name of a codec that is refused.)
    words = r"(?<!\")\b(c?[pP]ickle|read_pickle|marshal|shelve|dill|joblib|torch\.load)\b"
    unwanted = re.compile(rf"{words}|allow_pickle ?= ?(?!False)")
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("studies/**/*.py")]
    assert len(sources) > 100
    for path in sources:
        found = unwanted.search(path.read_text())
        assert not found, f"{path.relative_to(ROOT)} says {found[0]}"


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
