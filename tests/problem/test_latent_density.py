"""The density of u, and the programs that are compiled for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core.compilation import bounded_jit
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask
from latentuq.forward.projection import Projection
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.architecture import VAESize
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_error import ModelError
from latentuq.prior.vae import init_vae
from latentuq.problem.inverse import InverseProblem
from linear_vae import curved_flow

SHAPE = (8, 6)
PIXELS = 48
DIM = 3
GAIN = Gain(np.linspace(0.5, 2, PIXELS).reshape(SHAPE))
ERRORS = {
    "diagonal": ModelError(jnp.full(SHAPE, 0.04), jnp.zeros((0, *SHAPE))),
    "low rank": ModelError(
        jnp.full(SHAPE, 0.04), 0.1 * jax.random.normal(jax.random.key(1), (4, *SHAPE))
    ),
}


def make_prior(error: str = "low rank", output: str = "sigmoid") -> GenerativePrior:
    size = VAESize(latent=DIM, width=16, blocks=1, output=output)
    decoder = init_vae(jax.random.key(0), SHAPE, size, 0.1).decoder
    return GenerativePrior(decoder, curved_flow(), ERRORS[error], {}, None, DIM, SHAPE)


def make_problem(prior: GenerativePrior, operator, y=None) -> InverseProblem:
    bound = operator.bind(SHAPE)
    if y is None:
        y = np.random.default_rng(0).uniform(size=bound.output_shape)
    return InverseProblem(prior, bound, GaussianNoise(0.1), y)


def test_the_density_does_not_know_the_operator():
    prior = make_prior()
    operators = [
        Blur(1.0, size=3),
        Blur(0.7, size=5, boundary="reflect"),
        Mask(np.arange(PIXELS).reshape(SHAPE) != 7) @ Blur(1.0, size=3),
        Projection([0.0, 30.0, 60.0]),
        LinearOperator(lambda x: x + jnp.roll(x, 1, axis=1), SHAPE),
    ]
    densities = [make_problem(prior, operator).density for operator in operators]
    # Programs are told apart by the number of data alone, seen or not.
    rows = [len(density.likelihood.data.y) for density in densities]
    assert set(rows) == {36, 48}
    assert len({jax.tree.structure(density) for density in densities}) == 2


def test_one_program_serves_all_masks_of_one_shape():
    """Whatever the number of observed pixels, and whether they are blurred or not."""
    prior, traces = make_prior(), []

    @bounded_jit
    def evaluate(density, u):
        traces.append(density)
        return density.log_density(u)

    order = np.random.default_rng(0).permutation(PIXELS).reshape(SHAPE)
    for blur, programs in ((None, 1), (Blur(1.0, size=3), 2)):
        for seen in (3, 12, 21, 30, 40, PIXELS):
            mask = Mask(order < seen)
            problem = make_problem(prior, mask if blur is None else mask @ blur)
            assert np.count_nonzero(problem.observed) == seen
            assert np.isfinite(evaluate(problem.density, jnp.ones(DIM)))
        assert len(traces) == programs


def test_a_point_of_another_shape_is_refused():
    problem = make_problem(make_prior(), RandomMask(0.8))
    with pytest.raises(UserError, match="one point has shape"):
        problem.log_density(jnp.zeros((1, DIM)))


def test_nothing_observed_fits_everything():
    with pytest.warns(UserWarning, match="Nothing is observed"):
        problem = make_problem(make_prior(), Mask(np.zeros(SHAPE)))
    assert problem.chi_squared(jnp.zeros(DIM)) == 0
