import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from data_archives import FILES, write_folder
from latentuq.cli.data import app
from latentuq.core.cache import md5
from latentuq.core.errors import UserError
from latentuq.data.publications import PUBLICATIONS

LICENCE = "These digits are for looking at only."


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("LATENTUQ_CACHE", str(tmp_path / "cache"))
    checksums = {name: md5(content) for name, content in FILES.items()}
    publication = replace(PUBLICATIONS["mnist"], checksums=checksums, sources=(), licence=LICENCE)
    monkeypatch.setitem(PUBLICATIONS, "mnist", publication)
    return write_folder(tmp_path / "source")


def test_json_alone_goes_to_standard_output(source, tmp_path):
    result = CliRunner().invoke(app, ["fetch", "mnist", "--from", str(source), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "dataset": "mnist",
        "path": str(tmp_path / "cache" / "data" / "mnist"),
        "files": sorted(FILES),
        "licence": LICENCE,
    }


def test_people_are_told_where_it_is(source, tmp_path):
    result = CliRunner().invoke(app, ["fetch", "mnist", "--from", str(source)])
    assert "mnist is verified and in" in result.stdout


def test_the_licence_is_said_before_the_download(source, monkeypatch):
    said = []

    def download(*_, **__):
        said.extend(capture)
        raise UserError("no network")

    capture = []
    monkeypatch.setattr("latentuq.cli.data.typer.echo", lambda text, err: capture.append(text))
    monkeypatch.setattr("latentuq.data.datasets.fetch", download)
    CliRunner().invoke(app, ["fetch", "mnist"])
    assert said == [LICENCE]


def test_force_goes_past_the_cache(source):
    runner = CliRunner()
    assert runner.invoke(app, ["fetch", "mnist", "--from", str(source)]).exit_code == 0
    assert runner.invoke(app, ["fetch", "mnist"]).exit_code == 0
    result = runner.invoke(app, ["fetch", "mnist", "--force"])
    assert isinstance(result.exception, UserError)


@pytest.mark.parametrize("arguments", [["cifar"], ["mnist", "--from", "missing"], ["mnist"]])
def test_what_the_user_gets_wrong_is_a_user_error(source, arguments):
    result = CliRunner().invoke(app, ["fetch", *arguments])
    assert isinstance(result.exception, UserError)
    assert result.stdout == ""


def test_progress_is_shown_on_a_terminal(source, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = CliRunner().invoke(app, ["fetch", "mnist", "--from", str(source), "--json"])
    assert json.loads(result.stdout)["dataset"] == "mnist"
    assert "reading" in result.stderr
