import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.core.batches import in_chunks, joined, padded


def test_padding_repeats_rows_from_the_first_on():
    rows = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(padded(rows, 4), rows[[0, 1, 2, 0]])
    np.testing.assert_array_equal(padded(rows, 2), rows[[0, 1, 2, 0]])
    np.testing.assert_array_equal(padded(rows, 3), rows)
    np.testing.assert_array_equal(padded(rows[:1], 3), rows[[0, 0, 0]])


def test_joining_keeps_the_first_rows_of_every_leaf():
    parts = [(np.arange(3), {"a": np.ones((3, 2))}), (np.arange(3, 6), {"a": np.zeros((3, 2))})]
    first, second = joined(parts, 4)
    np.testing.assert_array_equal(first, np.arange(4))
    np.testing.assert_array_equal(second["a"].sum(axis=1), [2, 2, 2, 0])


@pytest.mark.parametrize("cores", [False, True])
@pytest.mark.parametrize("n", [1, 4, 5, 8, 11])
def test_chunks_of_one_shape_give_what_the_whole_gives(n, cores):
    shapes = []

    def fn(x, y):
        shapes.append((x.shape, y.shape))
        return {"sum": x.sum(axis=1) + y, "product": x * y[:, None]}

    x, y = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32), np.arange(n)
    found = in_chunks(fn, 4, x, jnp.asarray(y), cores=cores)
    assert set(shapes) == {((4, 3), (4,))}
    assert isinstance(found["sum"], np.ndarray)
    np.testing.assert_allclose(found["sum"], x.sum(axis=1) + y, rtol=1e-6)
    np.testing.assert_allclose(found["product"], x * y[:, None], rtol=1e-6)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_keys_are_divided_as_keys(kind):
    keys = jax.random.split(jax.random.key(0, impl=kind), 5)
    found = in_chunks(jax.random.key_data, 2, keys)
    np.testing.assert_array_equal(found, jax.random.key_data(keys))


def test_traced_arrays_stay_whole():
    double = jax.jit(lambda x: in_chunks(lambda part: 2 * part, 2, x))
    np.testing.assert_array_equal(double(jnp.arange(5.0)), 2 * np.arange(5.0))
