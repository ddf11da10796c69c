"""Every reader on files that strangers may have made: it reads them or says why not, soon.

Each test starts from a small valid file and damages it. `FUZZ_EXAMPLES` asks for more examples.
"""

import contextlib
import gzip
import io
import json
import os
import resource
import signal

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import data_archives
from exact_posteriors import plain_posterior
from latentuq.cli.models import print_metrics, summary
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.core.tensors import read_tensors
from latentuq.data.datasets import load_dataset
from latentuq.data.image_sets import read_images
from latentuq.data.images import read_fits_header, read_image
from latentuq.data.observation import Observation
from latentuq.data.packages import read_cifar10, read_radio_galaxies, read_solar_cells
from latentuq.forward.mask import parse_mask
from latentuq.posterior.file import load_posterior
from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.flow import init_flow
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import ModelError
from latentuq.prior.model_file import load_prior, save_prior
from latentuq.prior.vae import init_vae
from latentuq.problem.specification import Specification

SHAPE = (6, 8)
GREY = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
MOST_BYTES = 2**24
"""What files may unpack to here: little, so that a reader that takes more is noticed."""
MOST_MEMORY = 2**28
"""By how much a process may grow over a test: the files here take kilobytes."""
SECONDS = 20
"""A reader that takes longer hangs: all of them need milliseconds, also on a busy machine."""


class TooSlow(BaseException):
    """Not an `Exception`, which readers turn into sentences."""


def pillow(kind, **options):
    def make(_):
        stream = io.BytesIO()
        Image.fromarray(GREY).save(stream, kind, **options)
        return stream.getvalue()

    return make


def fits(compressed):
    def make(_):
        from astropy.io import fits

        stream = io.BytesIO()
        image = fits.CompImageHDU(np.tile(GREY, (4, 4)).astype(np.int16))
        units = [fits.PrimaryHDU(GREY.astype(np.float32)), image] if compressed else None
        fits.HDUList(units or [fits.PrimaryHDU(GREY)]).writeto(stream)
        return stream.getvalue()

    return make


def numpy_file(write):
    def make(_):
        stream = io.BytesIO()
        write(stream, np.tile(GREY, (50, 1, 1)))
        return stream.getvalue()

    return make


def idx(_):
    return data_archives.FILES["train-images-idx3-ubyte"]


def zipped(make):
    return lambda folder: gzip.compress(make(folder))


def write_tar(path):
    path.write_bytes(data_archives.tar_bytes(data_archives.FILES, "", "w"))


def archive(write):

    def make(folder):
        path = folder / "made"
        write(path)
        return path.read_bytes()

    return make


def all_of(read):
    return lambda path: list(read(path))


def model_file(folder):
    size, flow = VAESize(2, 1, 4, encoder_blocks=1, encoder_width=4), FlowSize(2, 4)
    vae = init_vae(jax.random.key(0), SHAPE, size, 0.1)
    error = ModelError(jnp.ones(SHAPE), jnp.ones((1, *SHAPE)))
    prior = GenerativePrior(
        vae.decoder,
        init_flow(jax.random.key(1), flow, jnp.zeros(2), jnp.ones(2)),
        error,
        {"low-rank": error},
        vae.encoder,
        2,
        SHAPE,
        card=Card("tiny", {"test_elbo": 1.0, "train_seconds": 60.0}, {"command": "train"}),
    )
    save_prior(folder / "made", prior)
    return (folder / "made").read_bytes()


def posterior_file(folder):
    plain_posterior(np.arange(24.0).reshape(12, 2), np.full(12, 1 / 12)).save(folder / "made")
    return (folder / "made").read_bytes()


PROBLEM = b"""format = 1
prior = "mnist"
y = "y.npy"
[[operator]]
kind = "blur"
sigma = 2.0
size = 3
boundary = "reflect"
[[operator]]
kind = "stack"
parts = [[{kind = "gain", gain = 2.0}], [{kind = "mask", mask = "columns:2-3"}]]
[[operator]]
kind = "matrix"
values = [1.0, 2.0]
rows = [0, 1]
columns = [0, 7]
shape = [2, 96]
[noise]
std = [0.1, 0.2]
"""


def read_fits(path):
    read_image(path)
    read_fits_header(path)


def read_model(path):
    load_prior(path)
    print_metrics("model", summary(path))


def read_problem(path):
    observation = Observation("y", np.zeros(SHAPE))
    Specification.read(path).with_files(observation).build(SHAPE)


# The name of each kind of file, how a valid one is made, and what reads it.
FILES = {
    "a.png": (pillow("PNG"), read_image),
    "a.jpg": (pillow("JPEG"), read_image),
    "a.webp": (pillow("WEBP"), read_image),
    "a.tif": (pillow("TIFF", compression="tiff_lzw"), read_image),
    "two.tif[1]": (
        pillow("TIFF", save_all=True, append_images=[Image.fromarray(GREY)]),
        read_image,
    ),
    "a.npy": (numpy_file(np.save), read_images),
    "a.npz": (numpy_file(np.savez_compressed), read_images),
    "a.fits": (fits(compressed=False), read_fits),
    "b.fits[1]": (fits(compressed=True), read_fits),
    "a.fits.gz": (zipped(fits(compressed=False)), read_fits),
    "a-ubyte": (idx, read_images),
    "a-ubyte.gz": (zipped(idx), read_images),
    "a.whl": (archive(data_archives.write_wheel), load_dataset),
    "a.tar": (archive(write_tar), load_dataset),
    "a.tgz": (archive(data_archives.write_tarball), load_dataset),
    "a.deb": (archive(data_archives.write_deb), load_dataset),
    "cifar.tgz": (archive(data_archives.write_cifar10), all_of(read_cifar10)),
    "radio.whl": (archive(data_archives.write_radio_galaxies), all_of(read_radio_galaxies)),
    "solar.whl": (archive(data_archives.write_solar_cells), all_of(read_solar_cells)),
    "a.safetensors": (model_file, read_model),
    "a.nc": (posterior_file, load_posterior),
    "a.toml": (lambda _: PROBLEM, read_problem),
}
SLOW = ("a.safetensors", "a.nc")


def mutations(content):
    """Strategies for damaged copies: bytes changed, cut off, added, doubled or made extreme."""
    length = len(content)
    # Headers, at either end, matter more than values.
    near = st.integers(0, min(length, 256)) | st.integers(max(0, length - 128), length)
    place = near | st.integers(0, length)
    some = st.binary(min_size=1, max_size=8)
    extreme = st.sampled_from(
        [b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"9" * 20, b"-1", b"[" * 2000, b"\xc3\x28"]
    )
    change = st.tuples(st.just("set"), place, some | extreme)
    insert = st.tuples(st.just("insert"), place, some | extreme)
    cut = st.tuples(st.just("cut"), place, st.just(b""))
    double = st.tuples(st.just("double"), place, st.integers(1, 200))

    def damage(steps):
        changed = bytearray(content)
        for kind, at, what in steps:
            if kind == "set":
                changed[at : at + len(what)] = what
            elif kind == "insert":
                changed[at:at] = what
            elif kind == "cut":
                del changed[at:]
            else:
                changed[at:at] = changed[at : at + what]
        return bytes(changed)

    steps = st.lists(change | change | insert | double | cut, min_size=1, max_size=3)
    return steps.map(damage)


def examples(usual):
    count = int(os.environ.get("FUZZ_EXAMPLES", usual))
    return settings(
        max_examples=count,
        derandomize="FUZZ_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def reads_or_explains(read, *arguments):
    def stop(*_):
        raise TooSlow(f"{read} took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with contextlib.suppress(UserError):
            read(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def small_limits(monkeypatch):
    """Little may be unpacked, and the process must not grow much."""
    monkeypatch.setenv(VARIABLE, str(MOST_BYTES))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MOST_MEMORY


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FILES],
)
def test_a_damaged_file_is_read_or_explained(name, tmp_path, small_limits):
    make, read = FILES[name]
    content, path, file = make(tmp_path), tmp_path / name, tmp_path / name.partition("[")[0]
    file.write_bytes(content)
    read(path)

    @examples(60)
    @given(mutations(content))
    def check(damaged):
        file.write_bytes(damaged)
        reads_or_explains(read, path)

    check()


# What a problem file may hold where something else is expected.
ODD = st.one_of(
    st.sampled_from([10**400, -(10**20), 2**63, 1e308, float("nan"), float("inf"), True, ""]),
    st.sampled_from(
        ["columns:" + "9" * 5000, "a" * 300 + ".png", "~nouser/x.npy", "\0.npy", "auto"]
    ),
    st.integers(-3, 9),
    st.floats(-3, 9),
    st.text(max_size=8),
    st.lists(st.integers(-3, 99) | st.text(max_size=3), max_size=4),
    st.fixed_dictionaries({"a": st.just(1)}),
    st.recursive(st.just([1.0]), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
)
PARAMETERS = {
    "blur": ("sigma", "size", "psf", "boundary"),
    "downsample": ("n",),
    "gain": ("gain",),
    "mask": ("mask",),
    "matrix": ("a", "values", "rows", "columns", "shape"),
    "projection": ("angles",),
    "quality": ("flags",),
    "random-mask": ("fraction", "seed"),
    "region-mask": ("rows", "columns"),
    "stack": ("parts",),
}


def tables(kind):
    names = PARAMETERS[kind]
    odd = st.fixed_dictionaries({"kind": st.just(kind)}, optional=dict.fromkeys(names, ODD))
    return odd if kind != "stack" else odd | odd.map(lambda table: table | {"parts": [[table]]})


OPERATORS = st.lists(st.sampled_from(sorted(PARAMETERS)).flatmap(tables), min_size=1, max_size=3)
NOISES = st.sampled_from(["std", "variance", "covariance"])
PROBLEMS = st.fixed_dictionaries(
    {
        "operator": OPERATORS | OPERATORS | ODD,
        "noise": st.just({"std": 0.1}) | st.dictionaries(NOISES, ODD, min_size=1, max_size=1) | ODD,
    },
    optional={"prior": ODD, "model_error": ODD, "y": ODD},
)


@pytest.mark.filterwarnings("ignore")
def test_any_table_is_a_problem_or_explained(tmp_path, small_limits):
    def build(table):
        specification = Specification.from_dict(table, lambda name: tmp_path / name)
        specification.with_files(Observation("y", np.zeros(SHAPE))).build(SHAPE)

    @examples(150)
    @given(PROBLEMS)
    def check(table):
        reads_or_explains(build, table)

    check()


RULES = st.sampled_from(["columns:", "rows:", "box:", "random:", ""])
NUMBERS = st.text("0123456789-,.:e ", max_size=12) | st.text(max_size=12) | st.just("9" * 5000)


@examples(200)
@given(RULES, NUMBERS)
def test_any_text_is_a_mask_or_explained(rule, rest):
    reads_or_explains(lambda: parse_mask(rule + rest).bind(SHAPE))


@pytest.mark.parametrize("flag", ["mask", "blur", "gain", "angles", "downsample", "noise"])
def test_any_flag_is_understood_or_explained(flag):
    observation = Observation("y", np.zeros(SHAPE))

    def build(text):
        specification = Specification.from_flags({flag: text})
        specification.with_files(observation).build(SHAPE)

    @examples(40)
    @given(NUMBERS | st.sampled_from(["1e400", "nan", "5000", "-1", "a" * 300, "~nouser/x.npy"]))
    def check(text):
        reads_or_explains(build, text)

    check()


def places(table, path=()):
    """Where a header has something, tables in tables included."""
    for name, value in table.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


@pytest.mark.slow
def test_any_header_is_a_model_or_explained(tmp_path, small_limits):
    model_file(tmp_path)
    file = read_tensors(tmp_path / "made", "prior")
    there = [*places(file.header)]

    @examples(100)
    @given(st.lists(st.tuples(st.sampled_from(there), ODD), min_size=1, max_size=2))
    def check(changes):
        header = json.loads(json.dumps(file.header))
        for (*parents, name), value in changes:
            table = header
            for parent in parents:
                table = table[parent] if isinstance(table.get(parent), dict) else {}
            table[name] = value
        metadata = {"latentuq": json.dumps(header)}
        (tmp_path / "made").write_bytes(safetensors.numpy.save(file.arrays, metadata))
        reads_or_explains(read_model, tmp_path / "made")

    check()


@pytest.mark.slow
def test_any_attribute_is_a_posterior_or_explained(tmp_path, small_limits):
    content = posterior_file(tmp_path)
    with h5py.File(tmp_path / "made") as file:
        names = sorted(set(file.attrs) - {"_NCProperties"})
        groups = ["/", "/inference", *(f"/{name}" for name in file), "/inference/khat"]
    values = st.integers(-3, 2**40) | st.floats() | st.text(max_size=9) | st.lists(st.floats())
    places = st.tuples(st.sampled_from(groups), st.sampled_from([*names, "share", "degrees"]))

    @examples(60)
    @given(places, values | st.none())
    def check(place, value):
        (tmp_path / "made").write_bytes(content)
        with h5py.File(tmp_path / "made", "a") as file:
            attributes = file[place[0]].attrs
            if value is None:
                attributes.pop(place[1], None)
            else:
                attributes[place[1]] = value
        reads_or_explains(load_posterior, tmp_path / "made")

    check()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [(10**12,), (3, 5), (0,), ()])
def test_an_array_of_any_shape_is_a_posterior_or_explained(tmp_path, small_limits, shape):
    content = posterior_file(tmp_path)
    with h5py.File(tmp_path / "made") as file:
        names = [name for name in file if isinstance(file[name], h5py.Dataset)]
    assert len(names) > 5
    for name in names:
        (tmp_path / "made").write_bytes(content)
        with h5py.File(tmp_path / "made", "a") as file:
            del file[name]
            file.create_dataset(name, shape, float, chunks=None)
        reads_or_explains(load_posterior, tmp_path / "made")
