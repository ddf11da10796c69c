import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import latentuq as lu
from densities import odd

pytestmark = pytest.mark.slow

NORMAL = np.log(2 * np.pi)  # ln of the integral of exp(-u.u / 2) in two dimensions
INF = np.inf


def ring_evidence():
    radius = np.linspace(0, 6, 60001)
    return np.log(
        2 * np.pi * np.trapezoid(radius * np.exp(-0.5 * ((radius - 2) / 0.2) ** 2), radius)
    )


# The maps behind bend and neck have unit determinant up to exp(neck u_0 / 2), which the density
# divides out; a Student-t of three degrees in two dimensions integrates to 2 pi as well.
CURVED = {
    "banana": (odd(bend=1.0, precision=(1.0, 4.0)), NORMAL - np.log(2)),
    "funnel": (odd(neck=1.0), NORMAL),
    "ring": (odd(precision=(0.0, 0.0), ring=1.0), ring_evidence()),
    "heavy tails": (odd(heavy=True), NORMAL),
}


@pytest.fixture(scope="module")
def curved():
    return {
        name: lu.solve_density(jax.random.key(0), density.log_density, 2)
        for name, (density, _) in CURVED.items()
    }


@pytest.mark.parametrize("name", CURVED)
def test_curved_densities_are_right_or_called_unreliable(curved, name):
    post, expected = curved[name], CURVED[name][1]
    right = abs(post.log_evidence - expected) < 3 * post.log_evidence_error + 0.1
    assert right or not post.verdict.reliable


def test_at_most_half_of_the_curved_densities_are_unreliable(curved):
    assert sum(not post.verdict.reliable for post in curved.values()) <= 2


def cell_probabilities(density, edges):
    """Of the cells of a grid, by a midpoint rule on 8 x 8 points per cell; and the rest."""
    fine = 8
    step = (edges[1] - edges[0]) / fine
    axis = edges[0] + step * (np.arange(fine * (len(edges) - 1)) + 0.5)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    values = np.exp(np.asarray(jax.vmap(density.log_density)(jnp.asarray(points, jnp.float32))))
    cells = len(edges) - 1
    masses = step**2 * values.reshape(cells, fine, cells, fine).sum(axis=(1, 3))
    return masses, np.log(masses.sum())


@pytest.mark.parametrize("name", ["banana", "ring"])
def test_draws_agree_with_a_fine_grid(curved, name):
    post = curved[name]
    edges = np.linspace(-6, 6, 25)
    masses, log_evidence = cell_probabilities(CURVED[name][0], edges)
    # The banana leaves the grid where u_0^2 > 6, with 1.4 % of its mass.
    assert -0.02 < log_evidence - CURVED[name][1] < 1e-3
    draws = np.asarray(post.draws)
    weights = np.exp(np.asarray(post.log_weights, np.float64))
    counts, _, _ = np.histogram2d(draws[:, 0], draws[:, 1], bins=(edges, edges), weights=weights)
    truth = masses / np.exp(CURVED[name][1])
    distance = 0.5 * np.sum(np.abs(counts - truth)) + 0.5 * abs(counts.sum() - truth.sum())
    # Draws worth n independent ones scatter by sqrt(p / n) in a cell, E |.| = 0.8 of that.
    noise = 0.4 * np.sum(np.sqrt(truth / post.diagnostics.ess))
    assert noise < 0.045  # Worth 4,000 draws: the banana's are, the budget asks for 1,200.
    assert distance < min(0.05, 1.5 * noise + 0.01)


# What is proper is solved, with the evidence known; what is not is called unreliable.
AWKWARD = {
    "a narrow Gaussian": (odd(mean=(0.5, -0.3), precision=(4.0, 0.5)), NORMAL - 0.5 * np.log(2)),
    "NaN in half of the space": (
        odd(mean=(1.0, 0.0), low=(0.0, -INF), outside=np.nan),
        NORMAL + scipy.stats.norm.logcdf(1),
    ),
    "-inf outside a box": (
        odd(precision=(4.0, 4.0), low=(-1.0, -1.0), high=(1.0, 1.0)),
        NORMAL - 2 * np.log(2) + 2 * np.log(2 * scipy.stats.norm.cdf(2) - 1),
    ),
    "a thousand scales away": (odd(mean=(1000.0, 1000.0)), NORMAL),
}
IMPROPER = {
    "NaN everywhere": odd(precision=(np.nan, 1.0)),
    "zero everywhere": odd(low=(5.0, 5.0), high=(4.0, 4.0)),
    "a flat direction": odd(precision=(1.0, 0.0)),
    "linear": odd(precision=(0.0, 0.0), slope=(1.0, 0.5)),
    "linear in one direction": odd(precision=(1.0, 0.0), slope=(0.0, 0.5)),
    "a saddle": odd(precision=(1.0, -1.0)),
    "constant": odd(precision=(0.0, 0.0)),
    "an island out of reach": odd(low=(500.0, 500.0), mean=(600.0, 600.0)),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_densities_are_solved(name):
    density, expected = AWKWARD[name]
    post = lu.solve_density(jax.random.key(1), density.log_density, 2)
    assert post.verdict.reliable
    assert abs(post.log_evidence - expected) < 4 * post.log_evidence_error + 1e-3


@pytest.mark.parametrize("name", IMPROPER)
def test_what_is_no_density_is_called_unreliable(name):
    post = lu.solve_density(jax.random.key(1), IMPROPER[name].log_density, 2)
    assert str(post.verdict).startswith("unreliable: ")
    assert post.modes.shape == (len(post.weights), 2)
    assert "unreliable" in post.summary()


def gaussian(u):
    return -0.5 * jnp.sum((u - 0.3) ** 2)


@pytest.mark.parametrize("dim", [1, 100])
def test_any_number_of_dimensions(dim):
    post = lu.solve_density(jax.random.key(0), gaussian, dim)
    assert post.verdict.reliable
    assert abs(post.log_evidence - dim * NORMAL / 2) < 4 * post.log_evidence_error + 1e-3
    mean, error = post.expect(lambda u: u)
    np.testing.assert_array_less(np.abs(mean - 0.3), 5 * error)


def test_double_precision():
    with jax.enable_x64(True):
        # A mode that float32 could not resolve: 1e-6 wide at 1.
        post = lu.solve_density(
            jax.random.key(0), lambda u: -0.5 * jnp.sum(((u - 1) / 1e-6) ** 2), 1
        )
        assert post.modes.dtype == post.draws.dtype == jnp.float64
        assert post.verdict.reliable
        expected = NORMAL / 2 + np.log(1e-6)
        assert abs(post.log_evidence - expected) < 4 * post.log_evidence_error + 1e-3
        assert abs(post.modes[0, 0] - 1) < 1e-7


def test_the_same_key_gives_the_same_answer():
    density = CURVED["funnel"][0]
    posts = [lu.solve_density(jax.random.key(3), density.log_density, 2) for _ in range(2)]
    np.testing.assert_array_equal(posts[0].draws, posts[1].draws)
    assert posts[0].log_evidence == posts[1].log_evidence
