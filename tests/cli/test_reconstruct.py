"""`latentuq reconstruct` as a person uses it, with a prior small enough for tests."""

import html
import json
import os
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import xarray
from PIL import Image

import commands
import latentuq as lu
from latentuq.inference.verdict import show_p_value
from latentuq.prior.model_file import save_prior
from latentuq.report.glossary import GLOSSARY

SHAPE = (6, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_prior, tiny_images):
    """A model, a clean image, and a FITS file with flags."""
    folder = tmp_path_factory.mktemp("reconstruct")
    save_prior(folder / "tiny.safetensors", tiny_prior)
    clean = np.asarray(tiny_images.train[0])
    np.save(folder / "clean.npy", clean)
    return folder


def call(monkeypatch, capsys, folder, *arguments):
    return commands.call(monkeypatch, capsys, folder, "reconstruct", *arguments)


MODEL = ("--model", "tiny.safetensors")
RUN = (
    "clean.npy",
    *MODEL,
    "--corrupt",
    "--mask",
    "columns:4-7",
    "--noise",
    "0.1",
    "--samples",
    "60",
    "-o",
    "report",
)


@pytest.fixture(scope="module")
def report(folder):
    """A whole run, in a process of its own."""
    code = "from latentuq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "reconstruct", *RUN, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "report", json.loads(done.stdout)


@pytest.mark.slow
def test_files_and_stages(report):
    path, printed = report
    facts = json.loads((path / "summary.json").read_text())
    assert facts == printed
    # A prior of three epochs knows too little for an answer to be reliable.
    assert (facts["status"], facts["verdict"]["reliable"]) == ("unreliable", False)
    assert "NOTHING_LEARNED" in facts["reasons"]
    figures = ("overview", "modes", "samples", "components", "latent", "search", "slices")
    for name in figures:
        assert (path / "figures" / f"{name}.png").stat().st_size > 1000
        assert (path / "figures" / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    stages = {"start-up", "compile", "problem", "search", "fit", "certify", "images", "write"}
    assert stages <= set(facts["seconds"])
    assert not [each for each in path.parent.iterdir() if each.name.startswith(".report")]


@pytest.mark.slow
def test_the_page_says_what_the_summary_says(report):
    path, facts = report
    page = (path / "report.html").read_text()
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == [
        "What it could be",
        "Samples",
        "How pixels vary together",
        "Behind it",
        "How far to trust it",
        "How this was made",
        "What the words mean",
    ]
    for mode in facts["modes"]:
        assert f"<h3>{mode['weight']:.1%} <small>± {mode['weight_error']:.1%}" in page
    evidence = f"{facts['log_evidence']:.3f} ± {facts['log_evidence_error']:.3f}"
    assert evidence.replace("-", "−") in page
    assert not re.search(
        r"(?<![\w.-])-\d[^<>]*(</p>|</figcaption>|</td>)", page.split("made</h2>")[0]
    )
    assert f"p-value {show_p_value(facts['predictive_p_value'])}" in html.unescape(page)
    assert "truth</figcaption>" in page
    assert f"off by {facts['rms_error_of_mean']:.3f}" in page
    assert "reconstruct clean.npy" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page), "the page must open offline"


@pytest.mark.slow
def test_the_glossary_explains_what_the_page_shows(report):
    page = (report[0] / "report.html").read_text()
    numbers = page.split("The numbers</summary>")[1].split("</details>")[0]
    shown = re.findall(r"<th>(.*?)</th>", numbers) + re.findall(r"<figcaption>(.*?)[<,]", page)
    terms = {re.split("[:,]", each)[0] for each in shown if each[0] not in "−+APW"}
    assert {"rounds of chains", "fit", "posterior mean", "mode"} <= terms
    assert terms - {"truth"} <= GLOSSARY.keys()


@pytest.mark.slow
def test_the_posterior_comes_back(report, folder):
    path, facts = report
    plain = xarray.open_dataset(path / "posterior.nc")
    assert plain["mean"].shape == SHAPE
    assert plain.attrs["verdict"] == facts["verdict"]["text"]
    assert plain.attrs["command"].startswith("latentuq reconstruct clean.npy")
    assert plain.attrs["seed"] == "0"
    post = lu.load_posterior(path / "posterior.nc", prior=folder / "tiny.safetensors")
    assert post.verdict.to_json() == facts["verdict"]
    assert post.log_evidence == pytest.approx(facts["log_evidence"])
    np.testing.assert_array_equal(post.draws, plain["draws"])
    assert post.sample_images(jax.random.key(0), 3).shape == (3, *SHAPE)


@pytest.mark.slow
def test_arviz_plots_it(report):
    import arviz
    import matplotlib

    matplotlib.use("Agg")
    data = arviz.from_netcdf(report[0] / "posterior.nc")
    assert data.posterior["u"].shape == (1, 60, 2)
    assert data.posterior["x"].shape == (1, 60, *SHAPE)
    arviz.plot_posterior(data, var_names=["u"])
    assert np.isfinite(arviz.summary(data, var_names=["u"], kind="stats")["mean"]).all()


@pytest.mark.slow
def test_fits_keeps_units_and_coordinates(monkeypatch, capsys, folder):
    from astropy.io import fits

    clean = np.load(folder / "clean.npy")
    header = fits.Header({"CRPIX1": 3.0, "CRVAL1": 150.1, "CTYPE1": "RA---TAN", "BUNIT": "Jy"})
    flags = np.zeros(SHAPE, np.int16)
    flags[:, 5:] = 4
    errors = np.full(SHAPE, 6500.0)
    counts = np.rint(60000 * np.clip(clean, 0, 1)).astype(np.uint16)
    units = [fits.PrimaryHDU(), fits.ImageHDU(counts, header, name="SCI")]
    units += [fits.ImageHDU(flags, name="DQ"), fits.ImageHDU(errors, name="ERR")]
    fits.HDUList(units).writeto(folder / "sky.fits")
    code, _, err = call(
        monkeypatch, capsys, folder, "sky.fits[SCI]", *MODEL, "--quality", "sky.fits[DQ]",
        "--noise", "sky.fits[ERR]", "--budget", "preview", "-o", "sky",
    )  # fmt: skip
    assert code == 0, err
    mean, mean_header = fits.getdata(folder / "sky" / "mean.fits", header=True)
    assert mean_header["CRVAL1"] == 150.1
    assert mean_header["BUNIT"] == "Jy"
    # In the units of the input, within what noise and the small prior leave open.
    assert np.abs(mean - counts)[:, :5].mean() < 0.2 * 65535
    post = lu.load_posterior(folder / "sky" / "posterior.nc", prior=folder / "tiny.safetensors")
    np.testing.assert_allclose(mean / 65535, post.mean, atol=1e-4)
    assert not np.asarray(post.problem.observed)[:, 5:].any()
    np.testing.assert_allclose(post.problem.noise.std, 6500 / 65535, rtol=1e-5)
    code, _, err = call(
        monkeypatch, capsys, folder, "sky.fits[SCI]", *MODEL, "--mask", "sky.fits[2]", "-o", "m"
    )
    assert code == 2
    assert "--quality" in err


@pytest.mark.slow
def test_maps_behind_a_gain_have_no_units(monkeypatch, capsys, folder):
    from astropy.io import fits

    counts = np.rint(30000 * np.clip(np.load(folder / "clean.npy"), 0, 1)).astype(np.int16)
    fits.PrimaryHDU(counts, fits.Header({"BUNIT": "Jy"})).writeto(folder / "faint.fits")
    arguments = ("faint.fits", *MODEL, "--gain", "0.5", "--noise", "10%", "--budget", "preview")
    code, _, err = call(monkeypatch, capsys, folder, *arguments, "-o", "faint")
    assert code == 2
    assert "say it with --scale" in err
    arguments = (*arguments, "--scale", "30000", "--json", "-o", "faint")
    code, out, err = call(monkeypatch, capsys, folder, *arguments)
    assert code == 0, err
    mean, header = fits.getdata(folder / "faint" / "mean.fits", header=True)
    post = lu.load_posterior(folder / "faint" / "posterior.nc", prior=folder / "tiny.safetensors")
    np.testing.assert_allclose(mean, post.mean, atol=1e-6)
    assert "BUNIT" not in header
    assert "scale of [0, 1]" in str(header["COMMENT"])
    # What was assumed about the file stays with the report.
    units = json.loads(out)["units"]
    assert "faint.fits holds int16 numbers from" in units
    assert "Jy, scaled as you said: black is 0 and white is 30000. The noise is 3000 Jy." in units
    assert units in html.unescape((folder / "faint" / "report.html").read_text())


def test_maps_finer_than_their_data_have_finer_coordinates(tmp_path):
    from astropy.io import fits
    from astropy.wcs import WCS

    from latentuq.report.write import _adapted

    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crpix, wcs.wcs.crval, wcs.wcs.cdelt = [2.0, 3.0], [150.0, 2.0], [-0.1, 0.1]
    header = fits.PrimaryHDU(np.zeros((4, 4)), wcs.to_header()).header
    fine = WCS(_adapted(header, (8, 8), (4, 4)))
    # The first coarse pixel covers the first two fine ones each way.
    expected = wcs.pixel_to_world_values(0, 0)
    np.testing.assert_allclose(fine.pixel_to_world_values(0.5, 0.5), expected)


@pytest.mark.slow
def test_data_that_are_no_image(monkeypatch, capsys, folder):
    matrix = np.random.default_rng(0).normal(size=(20, 48)) / 7
    np.save(folder / "matrix.npy", matrix)
    np.save(folder / "numbers.npy", matrix @ np.load(folder / "clean.npy").ravel())
    code, _, err = call(
        monkeypatch, capsys, folder, "numbers.npy", *MODEL, "--matrix", "matrix.npy",
        "--noise", "0.1", "--budget", "preview", "-o", "numbers",
    )  # fmt: skip
    assert code == 0, err
    assert "data</figcaption>" in (folder / "numbers" / "report.html").read_text()


def bad_files(folder):
    (folder / "text.png").write_text("not an image")
    np.save(folder / "wide.npy", np.zeros((9, 9)))
    np.save(folder / "nothing.npy", np.full(SHAPE, np.nan))
    np.save(folder / "empty.npy", np.zeros((0, 8)))
    np.save(folder / "holes.npy", np.where(np.eye(*SHAPE), np.nan, 0.5))
    np.save(folder / "seen.npy", np.full(SHAPE, 0.5))
    np.save(folder / "cube.npy", np.full((5, *SHAPE), 0.5))
    np.save(folder / "vector.npy", np.full(48, 0.5))
    (folder / "full").mkdir(exist_ok=True)
    (folder / "full" / "mine.txt").write_text("keep me")
    (folder / "afile").write_text("a file")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.png"], ["missing.png", "no file"]),
        (["text.png"], ["text.png"]),
        (["wide.npy"], ["(9, 9)", "(6, 8)", "--resize"]),
        (["cube.npy", "--resize", "pad"], ["(5, 6, 8)", "(height, width) is expected."]),
        (["vector.npy", "--resize", "crop"], ["(48,)", "(6, 8)."]),
        (["nothing.npy"], ["nothing.npy", "missing pixels"]),
        (["empty.npy"], ["empty.npy", "no pixels"]),
        (["holes.npy", "--corrupt"], ["--corrupt"]),
        (["seen.npy", "--noise", "-0.1"], ["negative"]),
        (["seen.npy", "--noise", "lots"], ["lots"]),
        (["seen.npy", "--mask", "diagonal:3"], ["columns", "rows", "box", "random"]),
        (["seen.npy", "--mask", "stripes"], ["columns", "rows", "box", "random"]),
        (["seen.npy", "--corrupt", "--noise", "wide.npy"], ["(9, 9)"]),
        (["seen.npy", "-o", "new/folder/report", "--budget", "huge"], ["preview"]),
        (["seen.npy", "-o", "full"], ["full", "--force"]),
        (["seen.npy", "-o", "afile"], ["afile"]),
        (["seen.npy", "-o", "/proc/nowhere/report"], ["/proc/nowhere"]),
        (["seen.npy", "--budget", "huge"], ["preview, default, thorough"]),
        (["seen.npy", "--noise", "auto", "--corrupt"], ["--noise auto"]),
        (["seen.npy", "--noise", "auto"], ["do not vary"]),
        (["seen.npy[1]"], ["extensions"]),
        (["seen.npy", "--seed", "99999999999999999999"], ["--seed", "4294967295"]),
        (["seen.npy", "--seed", "4294967296"], ["--seed", "4294967295"]),
        (["seen.npy", "--seed", "-1"], ["--seed"]),
    ],
)
def test_bad_input_is_one_sentence(monkeypatch, capsys, folder, arguments, words):
    bad_files(folder)
    before = sorted(folder.rglob("*"))
    code, out, err = call(monkeypatch, capsys, folder, *arguments, *MODEL)
    assert (code, out) == (2, "")
    # Besides, a log file is told how far the command had come.
    lines = [line for line in err.splitlines() if not re.match(r" *\d+\.\d s  ", line)]
    assert len(lines) == 1, err
    assert all(word in err for word in words), err
    assert sorted(folder.rglob("*")) == before, "something was left behind"


def test_colour_and_odd_values_are_mentioned(monkeypatch, capsys, folder):
    rgb = np.zeros((9, 9, 3), np.uint8)
    rgb[..., 0] = 200
    Image.fromarray(rgb).save(folder / "colour.png")
    np.save(folder / "large.npy", np.full((9, 9), 7.0))
    # Their shape is wrong as well, which ends the command.
    with pytest.warns(UserWarning, match="reduced to grey"):
        assert call(monkeypatch, capsys, folder, "colour.png", *MODEL)[0] == 2
    code, _, err = call(monkeypatch, capsys, folder, "large.npy", *MODEL, "--resize", "crop")
    assert code == 2
    assert "values from 7 to 7, but black is taken to be 0 and white 1" in err


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(folder):
    import signal

    code = "from latentuq.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "reconstruct", *RUN[:-1], "interrupted"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not list(folder.glob(".interrupted.*")):
        time.sleep(0.05)
    time.sleep(1)  # The inference is under way.
    # As a terminal does: all processes of the command get it.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "latentuq: Interrupted."
    assert not list(folder.glob("*interrupted*"))
    assert not list(folder.glob(".interrupted*"))


# Nothing that the prior makes.
BOARD = (np.indices(SHAPE).sum(axis=0) % 2).astype(np.uint8)


@pytest.mark.slow
def test_several_images_in_one_call(monkeypatch, capsys, folder):
    (folder / "night").mkdir()
    (folder / "night" / "text.png").write_text("not an image")
    board = Image.fromarray(255 * BOARD)
    board.save(folder / "night" / "board.png")
    board.save(folder / "board.png")
    run = ("--noise", "2%", "--budget", "preview", *MODEL)
    code, out, err = call(monkeypatch, capsys, folder, "night", "board.png", *run, "--strict")
    assert code == 2
    (line,) = [line for line in err.splitlines() if line.startswith("latentuq: ")]
    assert line.startswith("latentuq: night/text.png: Cannot read")
    first, second, last = out.splitlines()
    assert first.startswith("night/board.png: unreliable: ")
    assert second.startswith("board.png: unreliable: ")
    assert last == "Index: latentuq-reports/index.html"
    assert re.search(r"^ *\d+\.\d s  board\.png \(1 of 3\): Searching", err, re.MULTILINE)
    names = {path.name for path in (folder / "latentuq-reports").iterdir()}
    assert names == {"index.html", "board.png", "board.png-2"}
    code, out, err = call(
        monkeypatch, capsys, folder, "night", *run, "--json", "-o", "night-reports", "--strict"
    )
    assert code == 2
    lines = [json.loads(line) for line in out.splitlines()]
    assert [facts["status"] for facts in lines] == ["unreliable", "failed"]
    assert err.splitlines() == [f"latentuq: night/text.png: {lines[1]['reasons'][0]}"]


@pytest.mark.slow
def test_strict_tells_unreliable_answers_by_the_exit_code(monkeypatch, capsys, folder):
    np.save(folder / "board.npy", BOARD.astype(float))
    run = ("board.npy", *MODEL, "--noise", "0.02", "--budget", "preview", "--json")
    code, out, err = call(monkeypatch, capsys, folder, *run, "--strict")
    facts = json.loads(out)
    assert (code, err) == (3, "")
    assert facts["status"] == "unreliable"
    marks = facts["verdict"]["marks"].values()
    bad = [mark["reasons"] for mark in marks if mark["standing"] == "bad"]
    assert facts["reasons"]
    assert set(facts["reasons"]) <= {each["cause"] for reasons in bad for each in reasons}
    assert (folder / "board.npy-report" / "report.html").exists()
    assert call(monkeypatch, capsys, folder, *run, "--force")[0] == 0


@pytest.mark.slow
def test_a_second_report_needs_force(monkeypatch, capsys, report, folder):
    path = report[0]
    (path / "notes.txt").write_text("mine")
    arguments = [*RUN, "--budget", "preview"]
    assert call(monkeypatch, capsys, folder, *arguments)[0] == 2
    code, out, _ = call(monkeypatch, capsys, folder, *arguments, "--force")
    assert code == 0
    assert "k-hat" in out
    assert f"Report: {path.name}" in out
    assert (path / "notes.txt").read_text() == "mine"
