import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import skimage.transform

from example_operators import example_operators, unbound_operators
from latentuq.core.errors import UserError
from latentuq.forward.blur import Blur
from latentuq.forward.downsample import Downsample
from latentuq.forward.gain import Gain
from latentuq.forward.linear import LinearOperator, linearity_violation
from latentuq.forward.mask import Mask, RandomMask, RegionMask, parse_mask
from latentuq.forward.matrix import Matrix
from latentuq.forward.operator import to_matrix
from latentuq.forward.projection import Projection
from latentuq.forward.registry import OPERATORS
from latentuq.forward.stacked import stack

SHAPE = (8, 6)
EXAMPLES = example_operators(SHAPE)
CASES = {
    **EXAMPLES,
    "masked blur": EXAMPLES["mask"] @ EXAMPLES["blur"],
    "blurred mask": EXAMPLES["blur-2"] @ EXAMPLES["mask"],
    "three in a row": Downsample(2) @ EXAMPLES["gain"] @ EXAMPLES["blur-1"],
    "stack": stack(EXAMPLES["mask"], EXAMPLES["projection"], EXAMPLES["downsample"]),
    "stack of a chain": stack(Downsample(2) @ EXAMPLES["blur"], EXAMPLES["matrix"]),
}
over_cases = pytest.mark.parametrize("operator", CASES.values(), ids=CASES.keys())


def draw(seed, shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def assert_adjoint(operator, seed=0):
    x, y = draw(seed, operator.input_shape), draw(seed + 1, operator.output_shape)
    forward, back = np.asarray(operator(x), np.float64), np.asarray(operator.adjoint(y), np.float64)
    assert back.shape == operator.input_shape
    # The bar: 1e-5, relative to the largest value that the products can have.
    scale = max(
        np.linalg.norm(forward) * np.linalg.norm(y), np.linalg.norm(back) * np.linalg.norm(x)
    )
    assert abs(np.vdot(forward, y) - np.vdot(x, back)) <= 1e-5 * scale


@over_cases
def test_adjoint(operator):
    assert_adjoint(operator)


@over_cases
def test_linearity(operator):
    # Sums of about 100 float32 terms: 100 * 6e-8, and the worst case does not occur.
    assert linearity_violation(operator, SHAPE) < 5e-6


@over_cases
def test_application_and_adjoint_equal_the_explicit_matrix(operator):
    matrix = to_matrix(operator)
    x, y = draw(2, SHAPE), draw(3, operator.output_shape)
    assert matrix.shape == (y.size, x.size)
    # Float32 sums of about 100 terms of size 1.
    np.testing.assert_allclose(np.ravel(operator(x)), matrix @ x.ravel(), atol=1e-5)
    np.testing.assert_allclose(np.ravel(operator.adjoint(y)), matrix.T @ y.ravel(), atol=1e-5)


@over_cases
def test_disjoint_operators_keep_a_diagonal_covariance_diagonal(operator):
    matrix = to_matrix(operator)
    covariance = (matrix * np.random.RandomState(4).rand(matrix.shape[1])) @ matrix.T
    off_diagonal = np.abs(covariance - np.diag(np.diag(covariance))).max()
    assert operator.disjoint == (off_diagonal == 0)


@over_cases
def test_data_shape_tells_the_image_shape_or_nothing(operator):
    assert operator.input_shape_for(operator.output_shape) in (SHAPE, None)


@over_cases
def test_prints_in_one_short_line(operator):
    text = repr(operator)
    assert len(text) < 120
    assert "\n" not in text
    assert "Array" not in text


@over_cases
def test_works_as_an_argument_of_compiled_functions(operator):
    x = draw(5, SHAPE)
    compiled = eqx.filter_jit(lambda operator, x: operator(x))(operator, x)
    np.testing.assert_allclose(compiled, operator(x), atol=1e-5)


@pytest.mark.parametrize("outer", ["mask", "blur", "projection", "matrix-1"])
@pytest.mark.parametrize("inner", ["gain", "blur-1"])
def test_composition_multiplies_matrices(outer, inner):
    outer, inner = EXAMPLES[outer], EXAMPLES[inner]
    np.testing.assert_allclose(
        to_matrix(outer @ inner), to_matrix(outer) @ to_matrix(inner), atol=1e-6
    )


def test_stack_concatenates_matrices_join_and_split_undo_each_other():
    both = stack(EXAMPLES["blur"], EXAMPLES["downsample"])
    blur, small = EXAMPLES["blur"], EXAMPLES["downsample"]
    np.testing.assert_array_equal(
        to_matrix(both), np.concatenate([to_matrix(blur), to_matrix(small)])
    )
    x = draw(6, SHAPE)
    first, second = both.split(both(x))
    np.testing.assert_allclose(first, blur(x), atol=1e-6)
    np.testing.assert_array_equal(both.join(first, second), both(x))
    levels = both.join(0.1, 0.2)
    np.testing.assert_array_equal(np.unique(levels[:48]), 0.1)
    assert set(levels[48:]) == {0.2}


@pytest.mark.parametrize(
    ("boundary", "mode"), [("zero", "constant"), ("periodic", "wrap"), ("reflect", "reflect")]
)
def test_blur_equals_scipy(boundary, mode):
    x = draw(7, (12, 15))
    psf = np.random.RandomState(8).rand(5, 7)
    expected = scipy.ndimage.convolve(x.astype(float), psf, mode=mode)
    # 35 float32 products of size 1.
    np.testing.assert_allclose(Blur(psf=psf, boundary=boundary)(x), expected, atol=1e-5)
    expected = scipy.ndimage.gaussian_filter(x.astype(float), 1.3, mode=mode, truncate=4)
    np.testing.assert_allclose(Blur(1.3, boundary=boundary)(x), expected, atol=1e-5)


def test_blur_of_the_paper():
    psf = np.asarray(Blur(3.0, size=11).psf)
    offsets = np.arange(-5, 6)
    expected = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / 18)
    np.testing.assert_allclose(psf, expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(28, 28), (27, 20), (16, 21)])
def test_projection_equals_radon_without_circle(shape):
    x = np.random.RandomState(9).rand(*shape)
    angles = [0.0, 30.0, 77.5, 90.0, 140.0]
    expected = skimage.transform.radon(x, angles, circle=False)
    # Float32 coordinates of size 20 are off by 2e-6, in each of the 40 terms of a line.
    np.testing.assert_allclose(Projection(angles)(x.astype(np.float32)), expected, atol=8e-5)


def test_projection_keeps_the_total():
    x = np.zeros((20, 20))
    x[5:15, 5:15] = 1.0
    sinogram = Projection(np.linspace(0, 170, 18))(x)
    # Discretisation: bilinear rotation of a square moves about a pixel's worth of its border.
    np.testing.assert_allclose(sinogram.sum(axis=0), 100.0, rtol=0.01)


def test_random_mask_is_the_published_one():
    mask = np.ones(784, bool)
    mask[np.random.RandomState(779).choice(784, 744, replace=False)] = False
    operator = RandomMask(0.95, seed=779).bind((28, 28))
    np.testing.assert_array_equal(operator.mask, mask.reshape(28, 28))


@pytest.mark.parametrize(("fraction", "hidden"), [(0.0, 0), (0.29, 29), (0.295, 29), (1.0, 100)])
def test_random_mask_hides_the_floor_of_its_fraction(fraction, hidden):
    assert int((~RandomMask(fraction).bind((10, 10)).mask).sum()) == hidden


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("columns:1-3", np.s_[:, 1:4]),
        ("rows:2", np.s_[2:3, :]),
        ("box:1,2,3,4", np.s_[1:4, 2:5]),
    ],
)
def test_mask_rules_name_what_is_hidden_ends_included(text, hidden):
    expected = np.ones(SHAPE, bool)
    expected[hidden] = False
    np.testing.assert_array_equal(parse_mask(text).bind(SHAPE).mask, expected)


def test_random_mask_rule():
    assert repr(parse_mask("random:0.95,779")) == "RandomMask(0.95, seed=779)"


def test_downsample_takes_block_means():
    x = draw(10, SHAPE)
    expected = x.reshape(4, 2, 3, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(Downsample(2)(x), expected, atol=1e-6)


def test_what_is_observed():
    shown = jnp.ones(SHAPE, bool)
    mask, blur, gain = EXAMPLES["mask"], EXAMPLES["blur"], EXAMPLES["gain"]
    np.testing.assert_array_equal((mask @ blur).observed(shown), mask.mask)
    np.testing.assert_array_equal((mask @ gain).observed(shown), mask.mask)
    np.testing.assert_array_equal((gain @ mask).observed(shown), mask.mask)
    assert (blur @ mask).observed(shown).all()
    assert (Downsample(2) @ mask).observed(shown).all()
    joint = stack(mask, blur).observed(shown)
    np.testing.assert_array_equal(joint, np.append(np.ravel(mask.mask), np.ones(48, bool)))
    two = mask @ RandomMask(0.5, seed=1)
    np.testing.assert_array_equal(
        two.observed(shown), mask.mask & RandomMask(0.5, seed=1).bind(SHAPE).mask
    )


def test_shapes_are_bound_by_the_first_partner_that_knows_them():
    chain = Downsample(2) @ Blur(0.8, size=3) @ Gain(np.ones(SHAPE))
    assert (chain.input_shape, chain.output_shape) == (SHAPE, (4, 3))
    free = Mask(np.ones((4, 3))) @ Downsample(2)
    assert free.input_shape is None
    assert free.adjoint(np.ones((4, 3))).shape == SHAPE
    assert Gain(2.0).bind(SHAPE).output_shape == SHAPE
    with pytest.raises(UserError, match=r"bind\(shape\)"):
        _ = free.output_shape
    with pytest.raises(UserError, match=r"bind\(shape\)"):
        Projection([0.0]).adjoint(np.ones((12, 1)))


def test_sparse_matrix_adds_repeated_entries():
    entries = scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 3))
    np.testing.assert_array_equal(to_matrix(Matrix(entries).bind((3,))), [[0, 3, 0], [0, 0, 0]])


def test_every_kind_has_an_example_of_its_own_type():
    examples = unbound_operators(SHAPE)
    for name, kind in OPERATORS.items():
        assert type(examples[name]) is kind


def test_a_function_that_is_not_linear_is_refused_with_its_violation():
    with pytest.raises(UserError, match=r"not linear: .* by 0\.\d"):
        LinearOperator(jnp.abs, SHAPE)
    with pytest.raises(UserError, match="not linear"):
        LinearOperator(lambda x: x + 1.0, SHAPE)
    with pytest.raises(UserError, match="not linear"):
        LinearOperator(lambda x: x / 0.0, SHAPE)
    with pytest.raises(UserError, match="imaginary"):
        LinearOperator(jnp.fft.fft2, SHAPE)
    with pytest.raises(UserError, match="fails on an image of 8x6"):
        LinearOperator(lambda x: x @ x, SHAPE)
    with pytest.raises(UserError, match="cannot transpose"):
        LinearOperator(lambda x: jnp.where(x > 0, x, x), SHAPE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mask(0.5 * np.ones(SHAPE)), "not 0.5"),
        (lambda: Mask(np.full(SHAPE, np.nan)), "not nan"),
        (lambda: Mask(1), "single value"),
        (lambda: Mask(np.ones(SHAPE))(np.ones((6, 8))), r"not \(6, 8\)"),
        (lambda: RandomMask(1.5), "not at 1.5"),
        (lambda: RandomMask(0.5, seed=-1), "not at -1"),
        (lambda: RegionMask(rows=(3, 2)), "3-2"),
        (lambda: RegionMask(), "rows or the columns"),
        (lambda: RegionMask(columns=(0, 6))(np.ones(SHAPE)), "0-6 leave the 8x6 image"),
        (lambda: parse_mask("diagonal:3"), "'diagonal:3' is not a mask"),
        (lambda: parse_mask("box:1,2,3"), "'box:1,2,3' is not a mask"),
        (lambda: Blur(-1.0), "not -1.0"),
        (lambda: Blur(1.0, size=4), "not 4"),
        (lambda: Blur(5000.0), "kernel of 40001 pixels a side; 4097 is the most"),
        (lambda: Blur(1.0, size=10**9 + 1), "kernel of 1e.09 pixels"),
        (lambda: Projection(np.zeros(10**6)).bind((28, 28)), "1000000 angles takes 6.4 GB"),
        (lambda: Blur(), "either sigma or psf"),
        (lambda: Blur(1.0, boundary="mirror"), "'mirror' is none of zero"),
        (lambda: Blur(psf=np.ones((2, 3))), "central pixel"),
        (lambda: Blur(psf=np.zeros((3, 3))), "zero everywhere"),
        (lambda: Blur(psf=np.ones((3, 3)), size=3), "leave size out"),
        (lambda: Blur(psf=np.full((3, 3), np.inf)), "contains inf"),
        (lambda: Blur(2.0)(np.ones(SHAPE)), "17x17 pixels is larger than .* 8x6; give size=5"),
        (lambda: Blur(2.0)(np.ones(8)), "2-D image"),
        (lambda: Downsample(0), "not 0"),
        (lambda: Downsample(4)(np.ones(SHAPE)), "do not tile"),
        (lambda: Projection([]), "list of numbers"),
        (lambda: Projection(["a"]), "made of real numbers"),
        (lambda: Gain(np.nan), "contains nan"),
        (lambda: Gain(1j), "real numbers, not 1j"),
        (lambda: Gain(1e300), r"contains 1e\+300"),
        (lambda: Matrix(np.ones((2, 3)))(np.ones(SHAPE)), "3 columns .* 48 pixels"),
        (lambda: Matrix(np.ones(3)), r"shape \(3,\)"),
        (lambda: Mask(np.ones((3, 3))) @ Gain(np.ones(SHAPE)), r"\(3, 3\), not \(8, 6\)"),
        (lambda: stack(Gain(np.ones(SHAPE)), Mask(np.ones((3, 3)))), r"\(3, 3\), not \(8, 6\)"),
        (lambda: stack(), "at least one"),
        (lambda: stack(Gain(1.0), 3), "not 3"),
        (lambda: Downsample(2).bind(SHAPE).adjoint(np.ones(SHAPE)), r"data of shape \(4, 3\)"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_sentence(make, message):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert str(caught.value).endswith(".")


def test_data_are_leaves_so_that_new_values_do_not_retrace():
    traces = []

    @eqx.filter_jit
    def apply(operator, x):
        traces.append(operator)
        return operator(x)

    x = draw(13, SHAPE)
    for seed in range(3):
        values = np.random.RandomState(seed).rand(*SHAPE)
        chain = Mask(values < 0.5) @ Blur(0.5 + seed, size=5) @ Gain(values)
        apply(chain, x)
    assert len(traces) == 1
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(chain))
