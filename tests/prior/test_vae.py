import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from latentuq.prior.architecture import VAESize
from latentuq.prior.vae import init_vae

SIZE = VAESize(latent=2, blocks=1, width=8, encoder_blocks=1, encoder_width=8)


def test_elbo_equals_its_definition():
    vae = init_vae(jax.random.key(0), (3, 4), SIZE, 0.3)
    x = jax.random.uniform(jax.random.key(1), (3, 4))
    key = jax.random.key(2)
    mean, std = vae.encoder(x)
    z = vae.encoder.sample(jax.random.split(key)[0], x)
    log_likelihood = stats.norm(vae.decoder(z), 0.3).logpdf(x).sum()
    kl = sum(-np.log(s) + (s**2 + m**2 - 1) / 2 for m, s in zip(mean, std, strict=True))
    parts = vae.elbo(key, x)
    np.testing.assert_allclose(parts.elbo, log_likelihood - kl, rtol=1e-5)
    np.testing.assert_allclose(parts.kl, kl, rtol=1e-4, atol=1e-5)


def test_sigmoid_decoder_stays_in_the_unit_interval():
    vae = init_vae(jax.random.key(0), (3, 4), SIZE, 0.3)
    images = jax.vmap(vae.decoder)(100 * jax.random.normal(jax.random.key(1), (50, 2)))
    assert float(jnp.min(images)) >= 0
    assert float(jnp.max(images)) <= 1
    assert images.shape == (50, 3, 4)
