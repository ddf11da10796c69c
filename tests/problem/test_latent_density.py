"""Data that each show one pixel are predicted without the rest of the image."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator
from latentuq.forward.mask import Mask, RandomMask
from latentuq.forward.projection import Projection
from latentuq.likelihood.noise import GaussianNoise
from latentuq.prior.architecture import VAESize
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_error import ModelError
from latentuq.prior.vae import Decoder, init_vae
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


class Inverted(Decoder):
    """The same network, and another image."""

    def __call__(self, z):
        return 1 - super().__call__(z)


def whole(prior: GenerativePrior) -> GenerativePrior:
    """The same prior with a decoder that always makes the whole image."""
    decoder = prior.decoder
    return dataclasses.replace(prior, decoder=lambda z: decoder(z))


@pytest.mark.parametrize("output", ["sigmoid", "linear"])
def test_a_narrowed_decoder_makes_the_same_pixels(output):
    decoder = make_prior(output=output).decoder
    pixels = np.array([40, 3, 3, 17])
    z = jnp.array([0.5, -1.0, 2.0])
    expected = np.ravel(decoder(z))[pixels]
    np.testing.assert_allclose(decoder.narrowed(pixels)(z), expected, rtol=1e-6)


@pytest.mark.parametrize("error", sorted(ERRORS))
@pytest.mark.parametrize(
    "operator", [RandomMask(0.8), GAIN @ RandomMask(0.5), RandomMask(0.3) @ GAIN], ids=str
)
def test_the_density_is_that_of_the_whole_image(operator, error):
    prior = make_prior(error)
    problem, expected = make_problem(prior, operator), make_problem(whole(prior), operator)
    assert problem.density.prior.shape != SHAPE
    assert expected.density.prior.shape == SHAPE
    for u in jax.random.normal(jax.random.key(2), (3, DIM)):
        np.testing.assert_allclose(problem.log_density(u), expected.log_density(u), rtol=1e-5)
    # The residual has the same length for data that are there, and none of the others.
    r, whole_r = problem.residual(u), expected.residual(u)
    count = int(np.count_nonzero(problem.observed))
    assert count <= len(r) < count + PIXELS / 16
    np.testing.assert_allclose(r[:count], whole_r[np.ravel(problem.observed)], atol=1e-5)
    np.testing.assert_array_equal(r[count:], 0)


def test_other_data_are_picked_the_same_way():
    prior = make_prior()
    problem = make_problem(prior, RandomMask(0.8))
    ys = jax.random.uniform(jax.random.key(3), (4, *SHAPE))
    u = jnp.ones(DIM)
    moved = jax.vmap(lambda y: problem.with_data(y).log_density(u))(ys)
    made = [make_problem(prior, RandomMask(0.8), y).log_density(u) for y in ys]
    np.testing.assert_allclose(moved, jnp.stack(made), rtol=1e-5)


def test_missing_data_are_left_out_too():
    y = np.full(SHAPE, 0.3)
    y[2:] = np.nan
    problem = make_problem(make_prior(), Gain(1.0), y)
    assert problem.residual(jnp.zeros(DIM)).shape == (12,)


@pytest.mark.slow
def test_masks_of_about_the_same_size_have_one_shape():
    prior, lengths = make_prior(), set()
    for hidden in range(PIXELS + 1):
        mask = np.arange(PIXELS).reshape(SHAPE) >= hidden
        if mask.any():
            lengths.add(len(make_problem(prior, Mask(mask)).residual(jnp.zeros(DIM))))
    assert lengths == set(range(3, PIXELS + 1, 3))


@pytest.mark.parametrize(
    "operator", [Blur(1.0, size=3), Downsample(2), RandomMask(0.5) @ Blur(1.0, size=3), Gain(2.0)]
)
def test_data_that_mix_pixels_or_show_all_need_the_whole_image(operator):
    assert make_problem(make_prior(), operator).density.prior.shape == SHAPE


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
    # Programs are told apart by the number of data alone, which is rounded up to steps of three.
    rows = [len(density.likelihood.data.y) for density in densities]
    assert set(rows) == {36, 48}
    assert len({jax.tree.structure(density) for density in densities}) == 2


def test_decoders_that_only_look_like_ours_make_whole_images():
    prior = make_prior()
    decoder = prior.decoder
    inverted = Inverted(decoder.network, decoder.shape, decoder.output)
    assert dataclasses.replace(prior, decoder=inverted).narrowed(np.arange(3)) is None


def test_a_point_of_another_shape_is_refused():
    problem = make_problem(make_prior(), RandomMask(0.8))
    with pytest.raises(UserError, match="one point has shape"):
        problem.log_density(jnp.zeros((1, DIM)))


def test_nothing_observed_fits_everything():
    with pytest.warns(UserWarning, match="Nothing is observed"):
        problem = make_problem(make_prior(), Mask(np.zeros(SHAPE)))
    assert problem.chi_squared(jnp.zeros(DIM)) == 0
