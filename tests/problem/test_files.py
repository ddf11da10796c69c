import dataclasses
import os
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from example_operators import example_operators, unbound_operators
from latentuq import prior_from
from latentuq.core.errors import UserError
from latentuq.core.toml_text import format_value
from latentuq.data.scaling import Scaling
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import to_matrix
from latentuq.forward.projection import Projection
from latentuq.forward.registry import build_operator, kind_of
from latentuq.forward.stacked import stack
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.generative import Card
from latentuq.prior.model_error import make_model_error
from latentuq.prior.model_file import load_prior, save_prior
from latentuq.problem import files as problem_file
from latentuq.problem.files import load_problem, save_problem
from latentuq.problem.inverse import InverseProblem
from latentuq.problem.specification import Specification
from own_files import write_image

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


def test_the_scale_of_saved_data_is_doubted_for_another_image(tmp_path):
    """A saved problem holds data where white is 1, whatever the image was that they came from."""
    problem, path = make_problem(EXAMPLES["mask"]), tmp_path / "night.toml"
    save_problem(problem, path)
    image = np.linspace(0, 255, 48).astype(np.uint8).reshape(SHAPE)
    for given, is_given in (({}, False), ({"scale": 255.0}, True)):
        specification = Specification.from_flags({"problem": path} | given)
        observation = problem_file.read_data(specification, image, PRIOR)
        assert observation.scale_is_given == is_given
        if is_given:
            stated = problem_file.make_problem(specification, PRIOR, observation)
            np.testing.assert_allclose(
                stated.y[stated.observed], (image / 255)[stated.observed], rtol=1e-6
            )
            assert stated.noise.std == problem.noise.std
        else:
            with pytest.raises(UserError, match="values from 0 to 255, but black is taken to be 0"):
                problem_file.make_problem(specification, PRIOR, observation)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_noise_survives_a_round_trip(noise, tmp_path):
    problem = make_problem(EXAMPLES["mask"], noise)
    save_problem(problem, tmp_path / "night.toml")
    assert_same(load_problem(tmp_path / "night.toml", PRIOR), problem)


def test_the_file_is_readable(tmp_path):
    blur = Blur(2.1, size=5)
    save_problem(make_problem(Projection([0, 45.5]) @ blur), tmp_path / "night.toml", "mnist")
    assert (tmp_path / "night.toml").read_text() == (
        'format = 1\nprior = "mnist"\nmodel_error = "given"\ny = "night-y.npy"\nscale = 1.0\n\n'
        '[[operator]]\nkind = "blur"\nsigma = 2.1\nsize = 5\nboundary = "zero"\n\n'
        '[[operator]]\nkind = "projection"\nangles = [0.0, 45.5]\n\n'
        "[noise]\nstd = 0.1\n"
    )
    assert sorted(os.listdir(tmp_path)) == ["night-y.npy", "night.toml"]


def test_registered_parameters_rebuild_their_operator():
    for name, operator in EXAMPLES.items():
        if name != "linear":
            again = build_operator(kind_of(operator), operator.parameters()).bind(SHAPE)
            # A Gaussian kernel is computed again, from its width in float32.
            np.testing.assert_allclose(
                to_matrix(again), to_matrix(operator), atol=1e-6, err_msg=name
            )


def test_patterns_are_kept_as_patterns():
    for name in ("random-mask", "region-mask"):
        pattern = unbound_operators(SHAPE)[name]
        assert repr(build_operator(name, pattern.parameters())) == repr(pattern)


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
    assert asked == ["mnist", str(tmp_path / "mine.safetensors")]


def test_the_model_error_in_use_is_saved_by_name(tmp_path):
    both = {"given": PRIOR.model_error, "large": make_model_error(0.3, SHAPE)}
    prior = dataclasses.replace(PRIOR, model_errors=both).with_model_error("large")
    problem = InverseProblem(prior, EXAMPLES["mask"], NOISES[0], np.zeros(SHAPE))
    save_problem(problem, tmp_path / "night.toml", "mine.safetensors")
    assert Specification.read(tmp_path / "night.toml").model_error == "large"
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


@pytest.mark.parametrize(
    ("trained", "kind", "white"),
    [
        (Scaling(0.0, 1.0), np.uint8, 255),
        (Scaling(0.0, 255.0), np.uint8, 255),
        (Scaling(0.0, 255.0), np.uint16, 65535),
        (Scaling(0.0, 1000.0), np.uint16, 1000),
    ],
)
def test_data_of_a_problem_file_are_read_as_any_observation(tmp_path, trained, kind, white):
    prior = dataclasses.replace(PRIOR, scaling=trained)
    write_image(tmp_path / "y.png", np.full(SHAPE, 51, kind))
    (tmp_path / "night.toml").write_text(
        GOOD.replace("y.npy", "y.png").replace("std = 0.1", 'std = "10%"')
    )
    problem = load_problem(tmp_path / "night.toml", prior)
    np.testing.assert_allclose(problem.y[2:], 51 / white, rtol=1e-6)


@pytest.mark.parametrize("saved", [True, False])
def test_a_trained_prior_comes_back_without_editing_the_file(tmp_path, tiny_prior, saved):
    prior = tiny_prior
    if saved:
        (tmp_path / "models").mkdir()
        save_prior(tmp_path / "models" / "tiny.safetensors", tiny_prior)
        prior = load_prior(tmp_path / "models" / "tiny.safetensors")
    # Trained on counts, but the problem is stated on the scale of [0, 1].
    prior = dataclasses.replace(prior, scaling=Scaling(100.0, 3000.0))
    y = np.random.default_rng(0).random(prior.shape)
    problem = InverseProblem(prior, Gain(1.0), NOISES[0], y)
    (tmp_path / "problems").mkdir()
    save_problem(problem, tmp_path / "problems" / "night.toml")
    again = load_problem(tmp_path / "problems" / "night.toml")
    np.testing.assert_array_equal(again.y, problem.y)
    u = jnp.full(prior.dim, 0.3)
    assert again.log_density(u) == pytest.approx(float(problem.log_density(u)), rel=1e-4)
    beside = tmp_path / "problems" / "night-prior.safetensors"
    assert beside.exists() != saved
    if not saved:
        with pytest.raises(UserError, match=r"night\.toml exists"):
            save_problem(problem, tmp_path / "problems" / "night.toml", overwrite=False)


def test_colour_stays_where_the_prior_has_it(tmp_path):
    shape = (2, 3, 3)
    prior = prior_from(lambda u: jnp.full(shape, u[0]), 1, shape, 0.1)
    y = np.random.default_rng(0).random(shape)
    save_problem(InverseProblem(prior, Gain(1.0), NOISES[0], y), tmp_path / "night.toml")
    np.testing.assert_allclose(load_problem(tmp_path / "night.toml", prior).y, y, rtol=1e-6)


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
        (
            GOOD.replace('"mask"', '"region-mask"').replace('mask = "rows:0-1"', "rows = [0.5, 3]"),
            "as an integer",
        ),
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
        (GOOD.replace("std", "sigma"), "one of std, variance, covariance, not sigma"),
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
    assert Specification.read(tmp_path / "night.toml").prior is None
    with pytest.raises(UserError, match="names no prior"):
        load_problem(tmp_path / "night.toml")
