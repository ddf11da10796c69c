import dataclasses
import os
import tomllib
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import typer
from typer.testing import CliRunner

from latentuq import prior_from
from latentuq.cli.problem_options import (
    BlurOption,
    DownsampleOption,
    MaskOption,
    NoiseOption,
    ProblemFlags,
    ProblemOption,
    VarianceOption,
    problem_from_flags,
)
from latentuq.core.errors import UserError
from latentuq.core.toml_text import format_value
from latentuq.data.images import write_image
from latentuq.data.scaling import Scaling
from latentuq.forward import (
    OPERATORS,
    Blur,
    Downsample,
    LinearOperator,
    Mask,
    Matrix,
    Projection,
    build_operator,
    example_operators,
    kind_of,
    stack,
    to_matrix,
)
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior import Card, make_model_error
from latentuq.problem import InverseProblem
from latentuq.problem import files as problem_file
from latentuq.problem.files import load_problem, read_problem_file, save_problem

SHAPE = (8, 6)
EXAMPLES = example_operators(SHAPE)
PRIOR = prior_from(lambda u: jnp.full(SHAPE, u[0]) + 0.1 * u[1] * jnp.eye(*SHAPE), 2, SHAPE, 0.1)
CASES = {
    **{name: operator for name, operator in EXAMPLES.items() if name != "linear"},
    "chain": Mask(np.eye(4, 3)) @ Downsample(2) @ Blur(0.7, size=3) @ EXAMPLES["gain"],
    "stack": stack(EXAMPLES["mask"] @ EXAMPLES["blur-2"], EXAMPLES["projection"]),
    "sparse": Matrix(
        scipy.sparse.random_array((300, 48), density=0.05, rng=np.random.default_rng(0))
    ),
}
NOISES = [
    GaussianNoise(0.1),
    GaussianNoise(np.linspace(0.1, 0.2, 48).reshape(SHAPE)),
    GaussianNoise(covariance=0.01 * (np.eye(48) + 0.1)),
]


def make_problem(operator, noise=NOISES[0]):
    shape = operator.bind(SHAPE).output_shape
    y = np.random.RandomState(0).rand(*shape)
    y.flat[0] = np.nan
    return InverseProblem(PRIOR, operator, noise, y)


def assert_same(loaded, problem):
    np.testing.assert_array_equal(to_matrix(loaded.operator), to_matrix(problem.operator))
    np.testing.assert_array_equal(loaded.y, problem.y)
    u = jnp.asarray([0.4, -1.0])
    np.testing.assert_allclose(loaded.log_density(u), problem.log_density(u), rtol=1e-6)


@pytest.mark.parametrize("operator", CASES.values(), ids=CASES.keys())
def test_problems_survive_a_round_trip(operator, tmp_path):
    problem = make_problem(operator)
    save_problem(problem, tmp_path / "night.toml")
    assert_same(load_problem(tmp_path / "night.toml", PRIOR), problem)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_noise_survives_a_round_trip(noise, tmp_path):
    problem = make_problem(EXAMPLES["mask"], noise)
    save_problem(problem, tmp_path / "night.toml")
    assert_same(load_problem(tmp_path / "night.toml", PRIOR), problem)


def test_the_file_is_readable(tmp_path):
    blur = Blur(2.1, size=5)
    save_problem(make_problem(Projection([0, 45.5]) @ blur), tmp_path / "night.toml", "mnist")
    assert (tmp_path / "night.toml").read_text() == (
        'format = 1\nprior = "mnist"\nmodel_error = "given"\ny = "night-y.npy"\n\n'
        '[[operator]]\nkind = "blur"\nsigma = 2.1\nsize = 5\nboundary = "zero"\n\n'
        '[[operator]]\nkind = "projection"\nangles = [0.0, 45.5]\n\n'
        "[noise]\nstd = 0.1\n"
    )
    assert sorted(os.listdir(tmp_path)) == ["night-y.npy", "night.toml"]


def test_registered_parameters_rebuild_their_operator():
    for name, operator in EXAMPLES.items():
        kind = OPERATORS[kind_of(operator)]
        if kind.parameters is not None:
            again = build_operator(kind_of(operator), kind.parameters(operator)).bind(SHAPE)
            # A Gaussian kernel is computed again, from its width in float32.
            np.testing.assert_allclose(
                to_matrix(again), to_matrix(operator), atol=1e-6, err_msg=name
            )


def test_patterns_are_kept_as_patterns():
    for name in ("random-mask", "region-mask"):
        pattern = OPERATORS[name].examples[0](SHAPE)
        assert repr(build_operator(name, OPERATORS[name].parameters(pattern))) == repr(pattern)


def test_the_prior_is_loaded_by_name_or_from_a_file_beside_the_problem(tmp_path, monkeypatch):
    asked = []

    def load_prior(name_or_path):
        asked.append(name_or_path)
        return PRIOR

    monkeypatch.setattr(problem_file, "load_prior", load_prior)
    problem = make_problem(EXAMPLES["mask"])
    for name in ("mnist", "mine.safetensors"):
        save_problem(problem, tmp_path / "night.toml", name)
        (tmp_path / "mine.safetensors").touch()
        assert_same(load_problem(tmp_path / "night.toml"), problem)
    assert asked == ["mnist", tmp_path / "mine.safetensors"]


def test_the_model_error_in_use_is_saved_by_name(tmp_path):
    both = {"given": PRIOR.model_error, "large": make_model_error(0.3, SHAPE)}
    prior = dataclasses.replace(PRIOR, model_errors=both).with_model_error("large")
    problem = InverseProblem(prior, EXAMPLES["mask"], NOISES[0], np.zeros(SHAPE))
    save_problem(problem, tmp_path / "night.toml", "mine.safetensors")
    assert read_problem_file(tmp_path / "night.toml").model_error == "large"
    foreign = dataclasses.replace(prior, model_error=make_model_error(0.2, SHAPE))
    problem = InverseProblem(foreign, EXAMPLES["mask"], NOISES[0], np.zeros(SHAPE))
    with pytest.raises(UserError, match=r"none that .* came with"):
        save_problem(problem, tmp_path / "night.toml", "mine.safetensors")


def test_a_prior_that_no_name_leads_to_is_left_out(tmp_path):
    prior = dataclasses.replace(PRIOR, card=Card(name="mnist"))
    problem = InverseProblem(prior, EXAMPLES["mask"], NOISES[0], np.zeros(SHAPE))
    save_problem(problem, tmp_path / "night.toml")
    with pytest.raises(UserError, match="names no prior"):
        load_problem(tmp_path / "night.toml")


def test_existing_files_are_spared_on_request(tmp_path):
    np.save(tmp_path / "night-y.npy", np.ones(SHAPE))
    with pytest.raises(UserError, match=r"night-y\.npy exists"):
        save_problem(make_problem(EXAMPLES["mask"]), tmp_path / "night.toml", overwrite=False)
    assert os.listdir(tmp_path) == ["night-y.npy"]


def test_whole_numbers_are_in_the_units_of_the_training_files(tmp_path):
    prior = dataclasses.replace(PRIOR, scaling=Scaling(0.0, 255.0))
    write_image(tmp_path / "y.png", np.full(SHAPE, 51, np.uint8))
    (tmp_path / "night.toml").write_text(GOOD.replace("y.npy", "y.png"))
    problem = load_problem(tmp_path / "night.toml", prior)
    np.testing.assert_allclose(problem.y[2:], 0.2, rtol=1e-6)


def test_python_functions_cannot_be_saved(tmp_path):
    problem = make_problem(LinearOperator(lambda x: 2 * x, SHAPE))
    with pytest.raises(UserError, match="Python code"):
        save_problem(problem, tmp_path / "night.toml")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "value", [True, 3, -2.5, 1e-7, np.float32(0.1), 'a"b\\ü', [1.0, 2.0], {"a": [1, {"b": 2.0}]}]
)
def test_toml_values_read_back_alike(value):
    again = tomllib.loads(f"value = {format_value(value)}")["value"]
    assert type(again) is (float if isinstance(value, np.floating) else type(value))
    assert np.float32(again) == value if isinstance(value, np.floating) else again == value


GOOD = 'y = "y.npy"\n[[operator]]\nkind = "mask"\nmask = "rows:0-1"\n[noise]\nstd = 0.1\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = ", "is not TOML"),
        ("format = 2\n" + GOOD, "has format 2"),
        ("colour = 1\n" + GOOD, "'colour', which is none of"),
        ("prior = 3\n" + GOOD, "prior = 3"),
        ("[noise]\nstd = 0.1", "at least one .*operator"),
        (GOOD.replace("mask", "warp"), "no operator 'warp'.*mask"),
        (GOOD.replace('kind = "mask"\n', ""), "needs a kind"),
        (GOOD.replace("mask =", "size ="), "'mask' cannot be built"),
        (GOOD.replace("rows:0-1", "none.png"), "no file"),
        (GOOD.replace('"mask"', '["mask"]'), "needs a kind"),
        (
            GOOD.replace('"mask"', '"region-mask"').replace('mask = "rows:0-1"', "rows = [1]"),
            "built",
        ),
        (GOOD.replace('"mask"', '"blur"').replace("mask =", "sigma = [1, 2]\n#"), "built"),
        (GOOD.replace('"mask"', '"matrix"').replace("mask =", "rows = [0]\n#"), "a, or values"),
        (
            GOOD.replace('"mask"', '"stack"').replace("mask =", "parts = [[]]\n#"),
            "A stack has parts",
        ),
        (GOOD.replace("y.npy", "text.npy"), "not real numbers"),
        (GOOD.replace("std", "sigma"), "one of std, variance and covariance"),
        (GOOD.replace("0.1", "-0.1"), "-0.1"),
        (GOOD.replace('y = "y.npy"\n', ""), "names no data"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(text, message, tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(SHAPE))
    np.save(tmp_path / "text.npy", np.full(SHAPE, "x"))
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_problem(tmp_path / "bad.toml", PRIOR)


def test_a_file_without_prior_says_so(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(SHAPE))
    (tmp_path / "night.toml").write_text(GOOD)
    assert read_problem_file(tmp_path / "night.toml").prior is None
    with pytest.raises(UserError, match="names no prior"):
        load_problem(tmp_path / "night.toml")


def test_image_files_of_masks_and_kernels(tmp_path):
    mask = np.eye(*SHAPE, dtype=np.uint8)
    write_image(tmp_path / "mask.png", 255 * mask)
    kernel = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]], np.uint8)
    write_image(tmp_path / "psf.png", kernel)
    flags = ProblemFlags(mask=str(tmp_path / "mask.png"), blur=str(tmp_path / "psf.png"))
    expected = Mask(mask) @ Blur(psf=kernel / 8)
    np.testing.assert_array_equal(
        to_matrix(problem_from_flags(flags, SHAPE).operator), to_matrix(expected.bind(SHAPE))
    )


def test_flags_blur_then_downsample_then_mask(tmp_path):
    np.save(tmp_path / "noise.npy", np.full((4, 3), 0.2))
    flags = ProblemFlags("columns:1", "0.5", 2, str(tmp_path / "noise.npy"))
    described = problem_from_flags(flags, SHAPE)
    assert repr(described.operator) == ("Mask(4x3) @ Downsample(2) @ Blur(sigma=0.5, 5x5, zero)")
    assert described.noise.std.shape == (4, 3)
    np.testing.assert_array_equal(described.operator.outer.mask[0], [True, False, True])


def test_every_saveable_kind_has_a_flag(tmp_path):
    np.save(tmp_path / "matrix.npy", np.ones((2, 48)))
    np.save(tmp_path / "covariance.npy", 0.01 * np.eye(2))
    flags = ProblemFlags(
        gain="2", blur="0.5,3", boundary="reflect", matrix=tmp_path / "matrix.npy",
        covariance=tmp_path / "covariance.npy",
    )  # fmt: skip
    described = problem_from_flags(flags, SHAPE)
    assert repr(described.operator) == "Matrix(2x48) @ Blur(sigma=0.5, 3x3, reflect) @ Gain(8x6)"
    assert described.noise.factor.shape == (2, 2)
    projected = problem_from_flags(ProblemFlags(angles="0,45.5"), SHAPE).operator
    np.testing.assert_array_equal(projected.angles, [0, 45.5])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boundary": "zero"}, "give --blur too"),
        ({"blur": "1,3,5"}, "neither SIGMA"),
        ({"blur": "1,4"}, "odd number of pixels, not 4"),
        ({"gain": "1,2"}, r"shape \(2,\)"),
        ({"angles": "north"}, "no file north"),
        ({"variance": "1", "covariance": "c.npy"}, "--variance or --covariance, not both"),
    ],
)
def test_flags_that_cannot_be_right(flags, message):
    with pytest.raises(UserError, match=message):
        problem_from_flags(ProblemFlags(**flags), SHAPE)


def test_no_flags_mean_the_image_itself_without_noise():
    described = problem_from_flags(ProblemFlags(), SHAPE)
    np.testing.assert_array_equal(to_matrix(described.operator), np.eye(48))
    assert described.noise.std == 0


def test_variance_flag():
    assert problem_from_flags(ProblemFlags(variance="0.04"), SHAPE).noise.std == np.float32(0.2)


def test_problem_flag_reads_the_file_and_excludes_the_others(tmp_path):
    save_problem(make_problem(EXAMPLES["blur"]), tmp_path / "night.toml")
    described = problem_from_flags(ProblemFlags(problem=tmp_path / "night.toml"), SHAPE)
    np.testing.assert_array_equal(to_matrix(described.operator), to_matrix(EXAMPLES["blur"]))
    with pytest.raises(UserError, match="leave out --noise"):
        problem_from_flags(ProblemFlags(noise="0.1", problem=tmp_path / "night.toml"), SHAPE)
    with pytest.raises(UserError, match="not both"):
        problem_from_flags(ProblemFlags(noise="0.1", variance="0.1"), SHAPE)


def test_the_options_make_a_command():
    app = typer.Typer()

    @app.command()
    def show(
        mask: MaskOption = None,
        blur: BlurOption = None,
        downsample: DownsampleOption = None,
        noise: NoiseOption = None,
        variance: VarianceOption = None,
        problem: ProblemOption = None,
    ) -> None:
        flags = ProblemFlags(mask, blur, downsample, noise, variance, problem)
        described = problem_from_flags(flags, SHAPE)
        typer.echo(f"{described.operator!r} {described.noise!r}")

    result = CliRunner().invoke(app, ["--mask", "box:0,0,1,1", "--noise", "0.1"])
    assert result.stdout == "Mask(8x6) GaussianNoise(0.1)\n"


def test_noise_maps_in_fits_are_in_the_units_of_the_data(tmp_path):
    from astropy.io import fits

    path = tmp_path / "error.fits"
    fits.PrimaryHDU(np.full(SHAPE, 51, np.uint8)).writeto(path)
    for flags, expected in (
        (ProblemFlags(noise=str(path)), 51 / 65535),
        (ProblemFlags(variance=str(path)), np.sqrt(51) / 65535),
    ):
        noise = problem_from_flags(flags, SHAPE, scale=65535.0, fits=True).noise
        np.testing.assert_allclose(noise.std, expected, rtol=1e-6)
    noise = problem_from_flags(ProblemFlags(noise=str(path)), SHAPE, scale=255.0).noise
    np.testing.assert_allclose(noise.std, 0.2, rtol=1e-6)


@pytest.mark.parametrize(
    ("flags", "hint"),
    [(ProblemFlags(noise="25.5"), "0.1"), (ProblemFlags(variance="650"), "0.01")],
)
def test_a_noise_level_in_the_units_of_the_file_is_noticed(flags, hint):
    with pytest.warns(UserWarning, match=rf"divided by 255, give {hint} instead"):
        problem_from_flags(flags, SHAPE, scale=255.0)
    with warnings.catch_warnings(action="error"):
        problem_from_flags(flags, SHAPE)
