import jax
import numpy as np

from latentuq.core.randomness import host_generator, spread_keys


def test_spread_keys_differ():
    keys = jax.random.key_data(spread_keys(jax.random.key(7), 1000))
    assert len(np.unique(keys, axis=0)) == 1000
    other = jax.random.key_data(spread_keys(jax.random.key(8), 1000))
    assert not np.any(np.isin(keys, other).all(axis=1))


def test_a_key_decides_the_numbers_of_the_host():
    first, again, other = (host_generator(jax.random.key(seed)).uniform() for seed in (0, 0, 1))
    assert first == again != other
