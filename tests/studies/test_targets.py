"""The families of densities whose truth is known: is it true?"""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from studies.hard_shapes import (
    HARD_SHAPES,
    Banana,
    Funnel,
    Product,
    Shell,
    StudentT,
    TwentyModes,
    TwoBananas,
)
from studies.many_modes import DIMENSIONS, KINDS, kind_of, many_modes, seen_through
from studies.mixtures import (
    GaussianMixture,
    ascend,
    attraction,
    find_masses,
    missing_mass,
    modes_of,
)

NUMBERS = range(49)
ONE_OF_EACH_KIND = [
    next(number for number in NUMBERS if kind_of(number) == (kind, 5)) for kind in KINDS
]
over_kinds = pytest.mark.parametrize("number", ONE_OF_EACH_KIND, ids=[*KINDS])


def round_gaussians(centres, widths, weights):
    centres, widths = np.asarray(centres, float), np.asarray(widths, float)
    covariances = widths[:, None, None] ** 2 * np.eye(centres.shape[1])
    return GaussianMixture(np.asarray(weights, float), centres, covariances)


def exact_log_density(target, points):
    terms = [
        np.log(weight) + scipy.stats.multivariate_normal(centre, covariance).logpdf(points)
        for weight, centre, covariance in zip(*target[:3], strict=True)
    ]
    return np.logaddexp.reduce(terms) + target.log_evidence


def draw(target, n, seed=0):
    rng = np.random.default_rng(seed)
    factors = np.linalg.cholesky(target.covariances)
    chosen = rng.choice(len(target.weights), n, p=target.weights)
    noise = rng.standard_normal((n, target.dim))
    return target.centres[chosen] + np.einsum("nij,nj->ni", factors[chosen], noise), chosen


class Draws:
    """Stands for a posterior: equally weighted draws."""

    def __init__(self, draws):
        self.draws = jnp.asarray(draws, jnp.float32)

    def expect(self, fn):
        values = np.asarray(jax.vmap(fn)(self.draws), float)
        return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


class Nothing:
    """Stands for a posterior without draws."""

    def expect(self, fn):
        return np.full(64, np.nan), np.full(64, np.nan)


def test_every_kind_comes_in_every_dimension():
    pairs = collections.Counter(kind_of(number) for number in NUMBERS)
    assert pairs == {(kind, dim): 1 for kind in KINDS for dim in DIMENSIONS}
    for number in NUMBERS:
        target = many_modes(number)
        assert target.dim == kind_of(number)[1]
        assert 2 <= len(target.weights) <= 50
        assert target.weights.sum() == pytest.approx(1)
        np.testing.assert_array_equal(target.centres, many_modes(number).centres)


def test_targets_of_one_dimension_share_programs():
    kinds = {
        jax.tree.structure(density): [leaf.shape for leaf in jax.tree.leaves(density)]
        for density in (many_modes(number).density for number in ONE_OF_EACH_KIND)
    }
    assert [*kinds.values()] == [[(64,), (64, 5), (64, 5, 5)]]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(many_modes(0).density))


@over_kinds
def test_the_density_is_the_mixture(number):
    target = many_modes(number)
    near, _ = draw(target, 50)
    points = np.concatenate([near, np.random.default_rng(1).standard_normal((50, target.dim))])
    exact = exact_log_density(target, points)
    found = jax.vmap(target.density)(jnp.asarray(points, jnp.float32))
    # Float32 rounds places to 1e-7, which widths of 0.05 and distances of 5 widths make 1e-4.
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=1e-3)


def test_a_measured_mixture_is_the_prior_times_the_likelihood():
    rng = np.random.default_rng(0)
    prior = many_modes(ONE_OF_EACH_KIND[[*KINDS].index("elongated")])
    A, y = rng.standard_normal((2, 5)), rng.standard_normal(2)
    points = rng.standard_normal((20, 5))
    likelihood = scipy.stats.norm(points @ A.T, 0.3).logpdf(y).sum(axis=1)
    np.testing.assert_allclose(
        exact_log_density(seen_through(prior, A, y, 0.3), points),
        exact_log_density(prior, points) + likelihood,
        rtol=1e-9,
    )


def test_needles_and_far_centres_are_what_they_are_called():
    needle = many_modes(ONE_OF_EACH_KIND[[*KINDS].index("needle")])
    widths = np.sqrt(needle.covariances[:, 0, 0])
    assert needle.weights[np.argmin(widths)] in (0.5, 0.9)
    assert widths.min() < 0.31 < 0.79 < widths.max()
    far = many_modes(ONE_OF_EACH_KIND[[*KINDS].index("far out")])
    beyond = np.linalg.norm(far.centres, axis=1) > np.sqrt(5) + 1.5
    assert np.sum(beyond) >= len(beyond) / 3


@over_kinds
def test_ascents_climb_to_modes(number):
    target = many_modes(number)
    points = np.random.default_rng(0).standard_normal((100, target.dim))
    ends = ascend(target, points)
    assert np.all(exact_log_density(target, ends) >= exact_log_density(target, points))
    # There the density is flat, on the scale of its narrowest width.
    slopes = jax.vmap(jax.grad(target.density))(jnp.asarray(ends, jnp.float32))
    widths = np.sqrt(np.linalg.eigvalsh(target.covariances)[:, 0].min())
    assert np.max(np.abs(slopes)) * widths < 1e-3
    modes = modes_of(target)
    gaps = np.linalg.norm(ends[:, None] - modes.points, axis=2)
    assert np.max(np.min(gaps, axis=1)) < 1e-3
    assert modes.masses.sum() == pytest.approx(1)
    assert np.all(np.diff(modes.masses) <= 0)


def test_components_that_overlap_are_one_mode():
    # A sum of two equal Gaussians has two maxima from a distance of two widths on.
    centres = [[0, 0], [1.9, 0], [9, 0], [11.1, 0]]
    target = round_gaussians(centres, np.ones(4), [0.1, 0.1, 0.4, 0.4])
    modes = modes_of(target)
    np.testing.assert_allclose(modes.masses, [0.4, 0.4, 0.2])
    np.testing.assert_allclose(modes.points[2], [0.95, 0], atol=1e-2)
    np.testing.assert_array_equal(modes.members, [2, 2, 0, 1])


def test_a_mode_attracts_its_side_of_the_plane():
    target = round_gaussians([[0.5, 0], [2.5, 0]], [0.4, 0.4], [0.5, 0.5])
    modes = modes_of(target)
    right = int(np.argmax(modes.points[:, 0]))
    shares = attraction(target, modes, draws=20_000)
    assert shares.sum() == pytest.approx(1)
    # P(u_0 > 1.5), with a standard error of 0.0018.
    assert shares[right] == pytest.approx(scipy.stats.norm.sf(1.5), abs=0.009)


@over_kinds
def test_attractions_sum_to_one(number):
    target = many_modes(number)
    shares = attraction(target, modes_of(target), draws=500)
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("number", [ONE_OF_EACH_KIND[0], ONE_OF_EACH_KIND[-1], 7])
def test_nothing_is_missing_from_exact_draws(number):
    target = many_modes(number)
    modes = modes_of(target)
    draws, _ = draw(target, 20_000)
    found = find_masses(target, modes, Draws(draws))
    heavy = modes.masses > 0.002
    np.testing.assert_array_less(
        np.abs(found.masses - modes.masses)[heavy], 6 * found.errors[heavy]
    )
    assert missing_mass(modes, found) <= modes.masses[~heavy].sum()


def test_a_mode_without_draws_is_missing():
    target = many_modes(ONE_OF_EACH_KIND[0])
    modes = modes_of(target)
    draws, chosen = draw(target, 20_000)
    kept = modes.members[chosen] != 3
    found = find_masses(target, modes, Draws(draws[kept]))
    assert missing_mass(modes, found) == pytest.approx(modes.masses[3], rel=1e-6)
    assert missing_mass(modes, find_masses(target, modes, Nothing())) == pytest.approx(1)


# What the hard shapes are, drawn with NumPy and SciPy.

MARGINS = {
    "Cauchy": scipy.stats.cauchy(),
    "Gumbel": scipy.stats.gumbel_r(),
    "log-gamma": scipy.stats.loggamma(0.5),
    "skew normal": scipy.stats.skewnorm(5),
}


def draw_shape(name, shape, n):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, shape.dim))
    if isinstance(shape, Banana):
        x[:, 1] = shape.bend * (x[:, 0] ** 2 - 1) + shape.width * x[:, 1]
        return x @ np.asarray(shape.rotation)
    if isinstance(shape, TwoBananas):
        x[:, 1] = 2 * (x[:, 0] ** 2 - 1) + 0.3 * x[:, 1]
        up = rng.uniform(size=n) < 0.7
        return np.stack([np.where(up, x[:, 0] - 3, x[:, 0] + 3), np.where(up, 1, -1) * x[:, 1]], 1)
    if isinstance(shape, Product):
        return MARGINS[name.split(",")[0]].rvs((n, shape.dim), random_state=rng)
    if isinstance(shape, StudentT):
        return x / np.sqrt(rng.chisquare(shape.degrees, (n, 1)) / shape.degrees)
    if isinstance(shape, Shell):
        radii = np.linspace(0, 2 * shape.radius, 100_001)
        profile = radii ** (shape.dim - 1) * scipy.stats.norm(shape.radius, shape.width).pdf(radii)
        drawn = np.interp(rng.uniform(size=n), np.cumsum(profile) / profile.sum(), radii)
        return x / np.linalg.norm(x, axis=1, keepdims=True) * drawn[:, None]
    if isinstance(shape, Funnel):
        x[:, 0] *= 1.5
        x[:, 1:] *= np.exp(0.5 * x[:, :1])
        return x
    assert isinstance(shape, TwentyModes)
    return np.asarray(shape.centres)[rng.integers(20, size=n)] + 0.1 * x


@pytest.mark.parametrize("name", HARD_SHAPES)
def test_a_shape_has_the_stated_tail_and_width(name):
    shape, n = HARD_SHAPES[name](), 100_000
    draws = draw_shape(name, shape, n)
    share = np.mean(jax.vmap(shape.event)(jnp.asarray(draws, jnp.float32)))
    error = np.sqrt(shape.probability * (1 - shape.probability) / n)
    assert abs(share - shape.probability) < 5 * error
    assert 0.005 < shape.probability < 0.4
    if "Cauchy" not in name:
        # Mean squares of t with 3 degrees of freedom have no variance: they settle slowly.
        width = np.sqrt(np.max(np.mean(draws**2, axis=0)))
        assert shape.scale == pytest.approx(width, rel=0.08)
    slopes = jax.vmap(jax.grad(shape))(jnp.asarray([np.zeros(shape.dim), *draws[:9]], jnp.float32))
    assert np.all(np.isfinite(slopes))


def integral_on_grid(shape, edges, counts):
    """The rectangle rule, which is exact to many digits for smooth densities without boundary."""
    axes = [np.linspace(*ends, count) for ends, count in zip(edges, counts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    values = np.asarray(jax.vmap(shape)(jnp.asarray(points, jnp.float32)), float)
    return np.exp(values).sum() * np.prod([axis[1] - axis[0] for axis in axes])


GRIDS = {
    "two bananas, 2 dimensions": (((-9, 9), (-70, 70)), (181, 1401)),
    "twenty modes, 2 dimensions": (((-6, 6), (-6, 6)), (601, 601)),
    "shell, 2 dimensions": (((-5, 5), (-5, 5)), (301, 301)),
}


TWO_DIMENSIONAL = [
    each for each in HARD_SHAPES if each.endswith(", 2 dimensions") and "Cauchy" not in each
]


@pytest.mark.parametrize("name", TWO_DIMENSIONAL)
def test_shapes_of_two_dimensions_are_normalised(name):
    shape = HARD_SHAPES[name]()
    if isinstance(shape, Banana):
        # Along u_1 every section is a Gaussian, for which half a width is fine enough.
        low, high = -shape.bend - 1 - 8 * shape.width, shape.bend * 35 + 8 * shape.width
        grid = ((-6, 6), (low, high)), (97, int(2 * (high - low) / shape.width))
    else:
        grid = GRIDS[name]
    assert integral_on_grid(shape, *grid) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", MARGINS)
def test_coordinates_of_products_are_normalised(name):
    (shape, *_) = (make() for each, make in HARD_SHAPES.items() if each.startswith(name))
    integral, _ = scipy.integrate.quad(
        lambda u: float(np.exp(shape.log_prob(jnp.asarray(u)))), -200, 200, points=[-10, 0, 10]
    )
    beyond = 2 * scipy.stats.cauchy.sf(200) if name == "Cauchy" else 0
    assert integral + beyond == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", [each for each in HARD_SHAPES if "Student" in each])
def test_student_t_is_that_of_scipy(name):
    shape = HARD_SHAPES[name]()
    points = draw_shape(name, shape, 20)
    exact = scipy.stats.multivariate_t(np.zeros(shape.dim), df=shape.degrees).logpdf(points)
    np.testing.assert_allclose(jax.vmap(shape)(jnp.asarray(points, jnp.float32)), exact, rtol=1e-4)


@pytest.mark.parametrize("name", [each for each in HARD_SHAPES if "funnel" in each])
def test_the_funnel_is_a_product_of_normals(name):
    shape = HARD_SHAPES[name]()
    u = draw_shape(name, shape, 20)
    exact = scipy.stats.norm(0, 1.5).logpdf(u[:, 0])
    exact += scipy.stats.norm(0, np.exp(u[:, :1] / 2)).logpdf(u[:, 1:]).sum(axis=1)
    np.testing.assert_allclose(jax.vmap(shape)(jnp.asarray(u, jnp.float32)), exact, rtol=1e-4)


@pytest.mark.parametrize("dim", [5, 10, 32])
def test_a_rotated_banana_is_a_banana_among_normals(dim):
    shape = HARD_SHAPES[f"banana 3 0.3, {dim} dimensions"]()
    np.testing.assert_allclose(shape.rotation @ shape.rotation.T, np.eye(dim), atol=1e-5)
    x = np.random.default_rng(0).standard_normal((20, dim))
    x[:, 1] = 3 * (x[:, 0] ** 2 - 1) + 0.3 * x[:, 1]
    flat = jax.vmap(Banana(3, 0.3))(jnp.asarray(x[:, :2], jnp.float32))
    exact = np.asarray(flat) + scipy.stats.norm.logpdf(x[:, 2:]).sum(axis=1)
    found = jax.vmap(shape)(jnp.asarray(x @ np.asarray(shape.rotation), jnp.float32))
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dim", [5, 10])
def test_a_shell_is_normalised(dim):
    """The mean over exact draws of q / p is the integral of q, if p is normalised."""
    shape = HARD_SHAPES[f"shell, {dim} dimensions"]()
    draws = draw_shape("shell", shape, 50_000)
    radii = np.linalg.norm(draws, axis=1)
    # Uniform directions and a narrower radius.
    area = scipy.stats.norm.pdf(0) ** -dim / (2 ** (dim / 2 - 1) * scipy.special.gamma(dim / 2))
    log_q = scipy.stats.norm(3, 0.1).logpdf(radii) - np.log(area) - (dim - 1) * np.log(radii)
    ratios = np.exp(log_q - np.asarray(jax.vmap(shape)(jnp.asarray(draws, jnp.float32)), float))
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(len(ratios)) + 1e-3
