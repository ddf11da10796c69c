import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from densities import quadratic, two_gaussians
from latentuq.core.errors import UserError
from latentuq.inference.target import Target
from studies.baselines.adam import STEPS, adam_recipe, annealed_weights, descend_all
from studies.baselines.schedule import staged_rates

pytestmark = pytest.mark.slow

DIM, GAP, WEIGHTS, WIDTHS = 3, 8.0, (0.3, 0.7), (0.5, 0.4)
MIXTURE = two_gaussians(DIM, GAP, WEIGHTS, WIDTHS)
FEW = (300, 200, 100)
STARTS, DRAWS = 8, 4000
MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[0.5, 0.3], [0.3, 0.4]])
GAUSSIAN = quadratic(MEAN, COVARIANCE, 2.0)


def run(seed=0, log_density_fn=MIXTURE.log_prob, dim=DIM, **settings):
    settings = {"starts": STARTS, "steps": FEW, "draws": DRAWS, "scale": 4.0} | settings
    return adam_recipe(jax.random.key(seed), log_density_fn, dim, **settings)


@pytest.fixture(scope="module")
def result():
    return run()


def test_gaussian_is_exact():
    result = run(0, GAUSSIAN.log_density, 2, starts=3, scale=1.0)
    # One minimum of three starts; Adam's last steps of 0.001 leave it within a few of them, which
    # costs ln p less than (0.01 / 0.3)^2 / 2.
    assert result.history["weights"].tolist() == [1.0]
    assert result.log_evidence == pytest.approx(2.0, abs=1e-3)
    std = np.sqrt(np.diag(COVARIANCE))
    assert np.all(np.abs(result.draws.mean(0) - MEAN) < 4 * std / np.sqrt(DRAWS) + 0.01)
    np.testing.assert_allclose(result.draws.std(0), std, rtol=4 / np.sqrt(2 * DRAWS))
    correlation = np.corrcoef(result.draws.T)[0, 1]
    exact = 0.3 / np.sqrt(0.5 * 0.4)
    assert abs(correlation - exact) < 4 * (1 - exact**2) / np.sqrt(DRAWS)


def test_two_modes_are_found_once_and_weighted(result):
    # Deepest first: 0.7 / 0.4^3 against 0.3 / 0.5^3. Each mean within 0.01 of a mode of width 0.4.
    np.testing.assert_allclose(result.history["weights"], [0.7, 0.3], atol=1e-3)
    assert result.log_evidence == pytest.approx(0.0, abs=1e-3)
    share = np.mean(result.draws[:, 0] > 0)
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / DRAWS)


def test_losses_are_those_of_the_end_points(result):
    heights = [float(MIXTURE.log_prob(mean)) for mean in MIXTURE.means]
    nearest = np.min(np.abs(-result.history["losses"][:, None] - heights), axis=1)
    assert result.history["losses"].shape == (STARTS,)
    assert np.all(nearest < 1e-3)


def test_one_after_another_is_the_same(result):
    single = run(batched=False)
    # Batched and single matrix products round differently; Adam forgets that at a minimum.
    assert single.log_evidence == pytest.approx(result.log_evidence, abs=1e-3)
    np.testing.assert_allclose(single.history["losses"], result.history["losses"], atol=1e-3)
    assert single.gradients == result.gradients


def test_cost_is_counted(result):
    assert result.gradients == STARTS * sum(FEW)
    # At each end point a forward evaluation and a Hessian.
    ends = STARTS * (1 + 3 * (DIM + 1))
    assert result.forward_equivalents == 3 * STARTS * sum(FEW) + ends
    assert result.seconds > 0
    assert result.compile_seconds > 0


def test_weights_of_the_likelihood_are_the_published_ones():
    weights = annealed_weights(STEPS)
    assert weights.size == 18000
    assert np.all(weights[10000:] == 1)
    # exp(t - 1) / 2 passes 0.25, 0.35 and 0.45 at t = 1 - ln 2, 1 - ln(10/7) and 1 - ln(10/9).
    changes = np.flatnonzero(np.diff(weights[:10000])) + 1
    assert changes.tolist() == [3069, 6434, 8947]
    assert np.unique(weights[:10000]).round(1).tolist() == pytest.approx([0.2, 0.3, 0.4, 0.5])


def test_the_descent_is_adam_on_the_annealed_density():
    # Rates too small to arrive, so that every step counts; optax's own Adam follows each start.
    rates = (1e-3, 1e-4, 1e-5)
    starts = jax.random.normal(jax.random.split(jax.random.key(3))[0], (3 * 2,)).reshape(3, 2)

    def loss(u, weight):
        prior = jnp.sum(jax.scipy.stats.norm.logpdf(u))
        return -prior - weight * (GAUSSIAN.log_density(u) - prior)

    later = {FEW[0]: 0.1, FEW[0] + FEW[1]: 0.1}
    adam = optax.adam(optax.piecewise_constant_schedule(rates[0], later))

    @jax.jit
    def step(u, state, weight):
        update, state = adam.update(jax.vmap(jax.grad(loss), (0, None))(u, weight), state)
        return u + update, state

    u, state = starts, adam.init(starts)
    for weight in annealed_weights(FEW):
        u, state = step(u, state, weight)
    given = staged_rates(rates, FEW), annealed_weights(FEW)
    ends = descend_all(Target(GAUSSIAN.log_density, 2), starts, *given)
    assert np.max(np.abs(ends - ends[0])) > 0.1
    np.testing.assert_allclose(ends, u, atol=1e-4)


def test_same_key_same_answer(result):
    again = run()
    assert again.log_evidence == result.log_evidence
    np.testing.assert_array_equal(again.draws, result.draws)


def test_no_minimum_is_said():
    with pytest.raises(UserError, match="minimum"):
        run(0, quadratic(MEAN, -COVARIANCE).log_density, 2, starts=3, scale=1.0)
