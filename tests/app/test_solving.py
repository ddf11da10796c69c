"""One image after another: what they share is made once, and no answer depends on the others."""

import warnings

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.app import solving
from latentuq.app.reconstruct import Request, reconstruct
from latentuq.app.solving import Given, Solver, Stating, noting
from latentuq.core.errors import UserError
from latentuq.prior.model_file import load_prior
from latentuq.problem.specification import Specification

SHAPE = (6, 8)
STATED = Specification.from_flags({"mask": "columns:4-5", "noise": "0.1"})
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def images(tiny_images):
    """In float64, which float32 does not hold."""
    noise = np.random.default_rng(0).normal(scale=0.1, size=(4, *SHAPE))
    return np.asarray(tiny_images.train[:4], np.float64) + noise


@pytest.fixture(scope="module")
def prior(model):
    return load_prior(model)


@pytest.fixture
def made(monkeypatch):
    """Counts the problems that are made anew, and with what."""
    found = []

    def make(*parts):
        found.append(parts)
        return lu.InverseProblem(*parts)

    monkeypatch.setattr(solving, "InverseProblem", make)
    return found


def assert_equal(one, other):
    """All numbers of two problems, and of what has been factored of them, are equal."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    assert structure == other_structure
    for leaf, expected in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, expected)


@pytest.mark.parametrize(
    "flags",
    [
        {"mask": "columns:4-5", "noise": "0.1"},
        {"noise": "3e-3"},
        {"downsample": "2", "noise": "0.1"},
        {"blur": "0.5", "mask": "rows:0-1", "noise": "0.01"},
        {"angles": "0,30,90", "noise": "0.3"},
        {"gain": "1000", "noise": "100"},
    ],
)
def test_a_problem_is_the_same_to_the_last_digit_whoever_came_before(prior, flags):
    operator, noise = Specification.from_flags(flags).build(SHAPE)
    rng, stating = np.random.default_rng(1), Stating(prior)
    size = np.asarray(operator(np.ones(SHAPE)))
    hidden = ~np.asarray(operator.observed(np.ones(SHAPE, bool)))
    for _ in range(3):
        values = np.where(hidden, np.nan, size * rng.normal(size=size.shape))
        found = stating.state("alike", operator, noise, values)
        for kind in ("alike", None):
            assert_equal(found, Stating(prior).state(kind, operator, noise, values))
        # A problem made by hand has factors of the same digits, and data that are rounded once.
        by_hand = lu.InverseProblem(prior, operator, noise, values)
        assert_equal(found, by_hand.with_data(values))
        u = np.full(prior.dim, 0.3, np.float32)
        np.testing.assert_allclose(found.log_density(u), by_hand.log_density(u), rtol=1e-5)


def test_only_what_is_alike_is_shared(prior, images, made):
    stating = Stating(prior)
    parts = STATED.build(SHAPE)
    first, second = stating.state("a", *parts, images[0]), stating.state("a", *parts, images[1])
    assert len(made) == 1
    assert second.likelihood.whitening is first.likelihood.whitening
    holes = images[2].copy()
    holes[0, 0] = np.nan
    assert np.isnan(stating.state("a", *parts, holes).y[0, 0])
    assert len(made) == 2
    stating.state("b", *parts, holes)
    stating.state("b", *parts, holes)
    assert len(made) == 3
    stating.state(None, *parts, holes)
    stating.state(None, *parts, holes)
    assert len(made) == 5


def test_infinite_data_are_refused_in_the_same_words_whoever_came_before(prior, images):
    parts, large = STATED.build(SHAPE), images[0].copy()
    large[0, 0] = 1e300  # Infinite in single precision.
    texts = []
    for before in ([], [images[1]]):
        stating = Stating(prior)
        for each in before:
            stating.state("a", *parts, each)
        with pytest.raises(UserError) as caught:
            stating.state("a", *parts, large)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert texts[0] == "y is too large, 1e+300, at (0, 0); mark missing data by NaN."


def test_files_are_read_once_for_images_of_equal_units(prior, images, tmp_path, monkeypatch):
    np.save(tmp_path / "noise.npy", np.full(SHAPE, 0.1))
    stated = Specification.from_flags({"noise": str(tmp_path / "noise.npy")})
    read, with_files = [], Specification.with_files

    def count(self, observation):
        read.append(observation.kind)
        return with_files(self, observation)

    monkeypatch.setattr(Specification, "with_files", count)
    solver = Solver(prior, stated)
    for image in (images[0], images[1], np.float32(images[2]), np.float32(images[3])):
        problem = solver.state(KEY, Given(image))
        np.testing.assert_array_equal(problem.noise.std, np.float32(np.full(SHAPE, 0.1)))
    assert read == ["float64", "float32"]


def test_an_image_may_have_a_mask_and_noise_of_its_own(prior, images):
    solver = Solver(prior, STATED)
    missing = np.zeros(SHAPE, bool)
    missing[:2] = True
    level = np.linspace(0.1, 0.2, 48).reshape(SHAPE)
    own = Given(images[0], "a", missing, {"variance": level**2})
    problem = solver.state(KEY, own)
    expected = missing.copy()
    expected[:, 4:6] = True
    np.testing.assert_array_equal(np.isnan(problem.y), expected)
    np.testing.assert_allclose(problem.noise.std, level, rtol=1e-6)
    # The next image has none of that.
    plain = solver.state(KEY, Given(images[1]))
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(plain.y[0])), [4, 5])
    np.testing.assert_allclose(plain.noise.std, 0.1)
    with pytest.raises(UserError, match=r"The mask of a has shape \(3, 8\), but the image has"):
        solver.state(KEY, own._replace(missing=missing[:3]))
    with pytest.raises(UserError, match="The mask of a hides all that there is of it"):
        solver.state(KEY, own._replace(missing=np.ones(SHAPE, bool)))
    holes = np.where(missing, images[0], np.nan)
    with pytest.raises(UserError, match="The mask of a hides all that there is of it"):
        solver.state(KEY, own._replace(image=holes))


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.full(SHAPE, np.nan), "The image holds nothing but missing pixels"),
        (np.full(SHAPE, np.inf), "The image holds infinite values"),
        (np.full(SHAPE, 900.0), "say what they are with --offset BLACK --scale"),
        (np.zeros((3, 8)), r"x has shape \(3, 8\), but the data of this problem have shape"),
        (np.zeros(SHAPE, "complex"), "real numbers"),
        (np.full(SHAPE, 1000, np.int32), "--scale"),
    ],
)
def test_what_is_no_image_is_one_sentence(prior, image, words):
    with pytest.raises(UserError, match=words) as caught:
        Solver(prior, STATED).state(KEY, Given(image, "x"))
    assert "\n" not in str(caught.value)


def test_a_clean_image_is_corrupted_by_its_own_key(prior, images):
    solver, clean = Solver(prior, STATED, corrupt=True), np.clip(images[0], 0, 1)
    keys = (KEY, KEY, jax.random.key(4))
    first, again, other = (solver.state(key, Given(clean)).y for key in keys)
    np.testing.assert_array_equal(first, again)
    seen = ~np.isnan(first)
    assert not np.any((first == other)[seen])
    # Of 36 normal numbers, within five standard errors.
    assert abs(np.std((first - clean)[seen]) / 0.1 - 1) < 5 / np.sqrt(72)
    holes = clean.copy()
    holes[0, 0] = np.nan
    with pytest.raises(UserError, match="A clean image has no missing pixels"):
        solver.state(KEY, Given(holes))
    with pytest.raises(UserError, match="known level"):
        Solver(prior, Specification.from_flags({"noise": "auto"}), corrupt=True)


def test_what_is_warned_of_is_noted(recwarn):
    def warn():
        warnings.warn("odd", stacklevel=1)
        warnings.warn("odder", stacklevel=1)

    with noting(quiet=True) as notes:
        warn()
    assert (notes, len(recwarn)) == (["odd", "odder"], 0)
    with noting(quiet=False) as notes:
        warn()
    assert (notes, len(recwarn)) == (["odd", "odder"], 2)

    def fail():
        with noting(quiet=False):
            warn()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(recwarn) == 4


@pytest.mark.slow
def test_an_answer_is_that_of_solve_and_of_reconstruct(prior, images, model, tmp_path):
    solver = Solver(prior, STATED, budget="preview")
    solved = [solver.solve(KEY, Given(image, "x")) for image in images[:2]]
    for image, each in zip(images, solved, strict=False):
        operator, noise = STATED.build(SHAPE)
        problem = lu.InverseProblem(prior, operator, noise, image).with_data(image)
        post = lu.solve(jax.random.split(KEY, 4)[2], problem, budget="preview")
        assert each.posterior.log_evidence == post.log_evidence
        np.testing.assert_array_equal(each.posterior.modes, post.modes)
        np.testing.assert_array_equal(each.posterior.mean, post.mean)
        assert (each.truth, each.level, each.notes) == (None, None, [])
        assert each.observation.name == "x"
    request = Request(
        images[1], tmp_path / "report", STATED, model, budget="preview", seed=3, samples=5
    )
    assert reconstruct(request).facts["log_evidence"] == solved[1].posterior.log_evidence
