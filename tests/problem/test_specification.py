"""A problem as plain data: flags, TOML and JSON say the same."""

import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from example_operators import example_operators
from latentuq import prior_from
from latentuq.core.errors import UserError
from latentuq.data.observation import Observation, Units
from latentuq.data.scaling import Scaling
from latentuq.forward.blur import Blur
from latentuq.forward.mask import Mask
from latentuq.forward.operator import to_matrix
from latentuq.likelihood.noise import GaussianNoise
from latentuq.problem.files import save_problem
from latentuq.problem.inverse import InverseProblem
from latentuq.problem.specification import MOST_OPERATORS, Specification
from own_files import write_image

SHAPE = (8, 6)
PLAIN = Observation("y.npy", np.zeros(SHAPE))


def build(flags, observation=PLAIN):
    """The operator and the noise that flags describe."""
    return Specification.from_flags(flags).with_files(observation).build(SHAPE)


def test_flags_toml_and_json_say_the_same(tmp_path):
    np.save(tmp_path / "gain.npy", np.full(SHAPE, 2.0))
    (tmp_path / "night.toml").write_text(
        """
        [[operator]]
        kind = "gain"
        gain = "gain.npy"
        [[operator]]
        kind = "blur"
        sigma = 0.5
        size = 3
        [[operator]]
        kind = "mask"
        mask = "columns:1-2"
        [noise]
        variance = 0.04
        """
    )
    client = {
        "operator": [
            {"kind": "gain", "gain": np.full(SHAPE, 2.0).tolist()},
            {"kind": "blur", "sigma": 0.5, "size": 3},
            {"kind": "mask", "mask": "columns:1-2"},
        ],
        "noise": {"variance": 0.04},
    }
    flags = {
        "gain": str(tmp_path / "gain.npy"), "blur": "0.5,3", "mask": "columns:1-2",
        "variance": "0.04", "matrix": None,
    }  # fmt: skip
    described = [
        Specification.from_flags(flags),
        Specification.read(tmp_path / "night.toml"),
        Specification.from_dict(json.loads(json.dumps(client))),
    ]
    built = [each.with_files(PLAIN).build(SHAPE) for each in described]
    for operator, noise in built:
        np.testing.assert_array_equal(to_matrix(operator), to_matrix(built[0][0]))
        assert noise.std == np.float32(0.2)


@pytest.mark.parametrize(
    "entry",
    [
        {"y": "secret.npy"},
        {"operator": [{"kind": "mask", "mask": "secret.png"}]},
        {"operator": [{"kind": "gain", "gain": "secret.npy"}]},
        {"operator": [{"kind": "quality", "flags": "secret.fits"}]},
        {"operator": [{"kind": "stack", "parts": [[{"kind": "blur", "psf": "secret.npy"}]]}]},
        {"noise": {"std": "secret.npy"}},
    ],
)
def test_a_client_cannot_name_files(entry):
    table = {"operator": [{"kind": "downsample", "n": 2}], "noise": {"std": 0.1}, **entry}
    with pytest.raises(UserError, match=r"'secret\.\w+' where numbers are expected"):
        Specification.from_dict(table)


def test_a_client_names_embedded_models_only():
    table = {"operator": [{"kind": "downsample", "n": 2}], "noise": {"std": 0.1}}
    assert Specification.from_dict(table | {"prior": "mnist"}).prior == "mnist"
    with pytest.raises(UserError, match="no embedded model '/home/me/m"):
        Specification.from_dict(table | {"prior": "/home/me/m.safetensors"})


def test_files_are_read_when_that_is_asked_for_and_not_before(tmp_path):
    specification = Specification.from_flags({"gain": str(tmp_path / "gain.npy")})
    with pytest.raises(UserError, match="There is no file"):
        specification.with_files(PLAIN)
    np.save(tmp_path / "gain.npy", np.full(SHAPE, 3.0))
    operator, _ = specification.with_files(PLAIN).build(SHAPE)
    np.testing.assert_array_equal(operator(np.ones(SHAPE)), 3.0)


def test_image_files_of_masks_and_kernels(tmp_path):
    mask = np.eye(*SHAPE, dtype=np.uint8)
    write_image(tmp_path / "mask.png", 255 * mask)
    kernel = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]], np.uint8)
    write_image(tmp_path / "psf.png", kernel)
    flags = {"mask": str(tmp_path / "mask.png"), "blur": str(tmp_path / "psf.png")}
    expected = Mask(mask) @ Blur(psf=kernel / 8)
    np.testing.assert_array_equal(to_matrix(build(flags)[0]), to_matrix(expected.bind(SHAPE)))


def test_quality_flags_hide_what_is_not_zero(tmp_path):
    flags = np.zeros(SHAPE, np.int16)
    flags[0, :3] = 4, 1, -1
    np.save(tmp_path / "quality.npy", flags)
    operator, _ = build({"quality": str(tmp_path / "quality.npy")})
    np.testing.assert_array_equal(operator.mask, flags == 0)


def test_flags_blur_then_downsample_then_mask(tmp_path):
    np.save(tmp_path / "noise.npy", np.full((4, 3), 0.2))
    flags = {"mask": "columns:1", "blur": "0.5", "downsample": 2}
    operator, noise = build(flags | {"noise": str(tmp_path / "noise.npy")})
    assert repr(operator) == ("Mask(4x3) @ Downsample(2) @ Blur(sigma=0.5, 5x5, zero)")
    assert noise.std.shape == (4, 3)
    np.testing.assert_array_equal(operator.outer.mask[0], [True, False, True])


def test_every_saveable_kind_has_a_flag(tmp_path):
    np.save(tmp_path / "matrix.npy", np.ones((2, 48)))
    np.save(tmp_path / "covariance.npy", 0.01 * np.eye(2))
    flags = {
        "gain": "2", "blur": "0.5,3", "boundary": "reflect", "matrix": tmp_path / "matrix.npy",
        "covariance": tmp_path / "covariance.npy",
    }  # fmt: skip
    operator, noise = build(flags)
    assert repr(operator) == "Matrix(2x48) @ Blur(sigma=0.5, 3x3, reflect) @ Gain(one number)"
    assert noise.factor.shape == (2, 2)
    for text, angles in (("0,45.5", [0, 45.5]), ("30", [30])):
        np.testing.assert_array_equal(build({"angles": text})[0].angles, angles)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boundary": "zero"}, "give --blur too"),
        ({"blur": "1,3,5"}, "neither SIGMA"),
        ({"blur": "1,4"}, "odd number of pixels, not 4"),
        ({"gain": "1,2"}, r"shape \(2,\)"),
        ({"angles": "north"}, "no file north"),
        ({"variance": "1", "covariance": "c.npy"}, "--variance or --covariance, not both"),
        ({"noise": "0.1", "variance": "0.1"}, "not both"),
        ({"mask": "stripes"}, "'stripes' is not a mask"),
        ({"variance": "auto"}, "no file auto"),
    ],
)
def test_flags_that_cannot_be_right(flags, message):
    with pytest.raises(UserError, match=message):
        build(flags)


def test_no_flags_mean_the_image_itself_without_noise():
    operator, noise = build({})
    np.testing.assert_array_equal(to_matrix(operator), np.eye(48))
    assert noise.std == 0


def test_noise_to_be_estimated_is_none_yet():
    specification = Specification.from_flags({"noise": "auto"})
    assert specification.noise_is_unknown
    assert specification.with_files(PLAIN).build(SHAPE)[1] is None
    table = {"operator": [{"kind": "downsample", "n": 2}], "noise": {"std": "auto"}}
    assert Specification.from_dict(table).noise_is_unknown


def test_problem_flag_reads_the_file_and_excludes_the_others(tmp_path):
    prior = prior_from(lambda u: jnp.full(SHAPE, u[0]), 1, SHAPE, 0.1)
    blur = example_operators(SHAPE)["blur"]
    problem = InverseProblem(prior, blur, GaussianNoise(0.1), np.zeros(SHAPE))
    save_problem(problem, tmp_path / "night.toml")
    (tmp_path / "night-y.npy").unlink()  # Only operator and noise are wanted.
    operator, noise = build({"problem": tmp_path / "night.toml"})
    np.testing.assert_array_equal(to_matrix(operator), to_matrix(blur))
    assert noise.std == np.float32(0.1)
    with pytest.raises(UserError, match="leave out --noise"):
        build({"noise": "0.1", "problem": tmp_path / "night.toml"})


@pytest.mark.parametrize("from_file", [False, True])
def test_noise_is_in_the_units_of_the_data(tmp_path, from_file):
    np.save(tmp_path / "error.npy", np.full(SHAPE, 51, np.uint8))

    def noise(name, observation):
        if not from_file:
            path = str(tmp_path / "error.npy")
            return build({{"std": "noise"}.get(name, name): path}, observation)[1]
        text = f'operator = [{{ kind = "gain", gain = 1 }}]\nnoise.{name} = "error.npy"'
        (tmp_path / "night.toml").write_text(text)
        return build({"problem": tmp_path / "night.toml"}, observation)[1]

    for scale in (255.0, 65535.0, -3000.0):
        counts = Observation("y.fits", np.zeros(SHAPE), Scaling(100.0, scale), kind="uint16")
        for name, expected in (("std", 51), ("variance", np.sqrt(51))):
            np.testing.assert_allclose(noise(name, counts).std, expected / abs(scale), rtol=1e-6)


BYTES = Observation("y.png", np.zeros(SHAPE), Scaling(0.0, 255.0), kind="uint8")
COUNTS = Observation("y.npy", np.zeros(SHAPE), Scaling(100.0, 3000.0))


@pytest.mark.parametrize(
    ("flags", "observation", "std"),
    [
        ({"noise": "25.5"}, BYTES, 0.1),
        ({"noise": "10%"}, BYTES, 0.1),
        ({"variance": "650.25"}, BYTES, 0.1),
        ({"noise": "60"}, COUNTS, 0.02),
        ({"noise": "2%"}, COUNTS, 0.02),
        ({"noise": "0.1"}, PLAIN, 0.1),
        ({"noise": "0"}, BYTES, 0.0),
    ],
)
def test_levels_of_noise_and_shares_of_white(flags, observation, std):
    assert build(flags, observation)[1].std == pytest.approx(std, rel=1e-6)


@pytest.mark.parametrize(
    ("flags", "observation", "words"),
    [
        ({"noise": "0.1"}, BYTES, "white is 255: give it in these units, or write 10%"),
        ({"variance": "0.01"}, BYTES, "write 10%"),
        ({"noise": "0.02"}, COUNTS, "black is 100 and white is 3100"),
        ({"noise": "a%"}, BYTES, "'a%' is not a percentage"),
    ],
)
def test_a_share_of_white_is_asked_about_where_the_data_have_other_units(flags, observation, words):
    with pytest.raises(UserError, match=words):
        build(flags, observation)


def test_the_noise_of_a_problem_file_is_in_the_units_of_that_file(tmp_path):
    text = 'scale = 1.0\noperator = [{ kind = "gain", gain = 1 }]\nnoise.std = 0.1'
    (tmp_path / "night.toml").write_text(text)
    found = Specification.from_flags({"problem": tmp_path / "night.toml", "scale": 255.0})
    assert found.units == Units(scale=255.0)
    assert found.with_files(BYTES).build(SHAPE)[1].std == np.float32(0.1)


@pytest.mark.parametrize("entry", ["scale = '1'", "offset = true", "invert = 1"])
def test_units_that_are_none(entry):
    with pytest.raises(UserError, match=entry.split()[0]):
        Specification.from_toml(
            f"{entry}\noperator = [{{kind = 'downsample', n = 2}}]\nnoise.std=1"
        )


@pytest.mark.parametrize("white", [1.0, 255])
def test_soft_edges_of_a_mask_become_hard(tmp_path, white):
    soft = np.linspace(0, 1, 48).reshape(SHAPE)
    np.save(tmp_path / "soft.npy", (white * soft).astype(type(white)))
    with pytest.warns(UserWarning, match=r"46 of 48 pixels of the mask soft\.npy"):
        operator, _ = build({"mask": str(tmp_path / "soft.npy")})
    np.testing.assert_array_equal(
        operator.mask, np.floor(white * soft) / white >= 0.5 if white > 1 else soft >= 0.5
    )


def test_masks_of_the_size_of_the_picture_are_resized_with_it():
    raw = np.arange(4 * 48.0).reshape(16, 12)
    mask = np.ones((16, 12))
    mask[:2] = 0
    picture = dataclasses.replace(PLAIN, raw=raw)
    stated = Specification(({"kind": "mask", "mask": mask}, {"kind": "blur", "sigma": 0.5}))
    with pytest.raises(UserError, match=r"shape \(16, 12\), .* \(8, 6\); --resize crop"):
        stated.fit(picture, SHAPE, None)
    with pytest.warns(UserWarning, match="resized from 16x12 to 8x6 pixels;"):
        found, resized = stated.fit(picture, SHAPE, "crop")
    assert [table["kind"] for table in found.operators] == ["blur"]
    assert np.isnan(resized.raw[0]).all()
    expected = raw.reshape(8, 2, 6, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(resized.raw[1:], expected[1:])
    same = Specification(({"kind": "mask", "mask": mask[:8, :6]},))
    assert same.fit(PLAIN, SHAPE, "crop")[0] is same


def test_names_in_a_file_are_relative_to_it(tmp_path):
    text = 'y = "a/y.npy"\noperator = [{ kind = "gain", gain = "g.npy" }]\nnoise.std = 0.1'
    (tmp_path / "night.toml").write_text(text)
    found = Specification.read(tmp_path / "night.toml")
    assert found.y == tmp_path / "a" / "y.npy"
    assert found.operators[0]["gain"] == Path(tmp_path / "g.npy")


@pytest.mark.parametrize("nested", [False, True], ids=["in a row", "one in another"])
def test_thousands_of_operators_are_refused_and_fifty_are_not(tmp_path, nested):
    def text(count):
        gain = '{kind = "gain", gain = 1.0}'
        inner = ", ".join([gain] * count)
        if nested:
            inner = gain
            for _ in range(count - 1):
                inner = f'{{kind = "stack", parts = [[{inner}]]}}'
        return f"operator = [{inner}]\nnoise = {{std = 0.1}}"

    (tmp_path / "a.toml").write_text(text(2000))
    with pytest.raises(UserError, match=r"more than 50 operators|is not TOML: maximum recursion"):
        Specification.read(tmp_path / "a.toml")
    with pytest.raises(UserError, match="more than 50 operators"):
        Specification.from_toml(text(51))
    operator, _ = Specification.from_toml(text(MOST_OPERATORS)).build((2, 3))
    assert operator.output_shape == ((6,) if nested else (2, 3))


@pytest.mark.parametrize(
    "line",
    [
        "sigma = 1" + "0" * 400,
        "sigma = 1" + "0" * 5000,
        "sigma = 1e400",
        "psf = '" + "a" * 300 + "'",
    ],
    ids=["large for a float", "long for Python", "infinite", "long for a name"],
)
def test_numbers_and_names_that_are_too_large_are_one_sentence(tmp_path, line):
    (tmp_path / "a.toml").write_text(f"[[operator]]\nkind = 'blur'\n{line}\n[noise]\nstd = 0.1\n")
    with pytest.raises(UserError):
        Specification.read(tmp_path / "a.toml").with_files(PLAIN).build(SHAPE)
