"""Small priors and images that many tests share."""

import atexit
import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

from latentuq.core import compilation
from latentuq.data.image_sets import ImageSet, make_image_set
from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import save_prior
from latentuq.prior.training.config import FitConfig, ModelErrorConfig, TrainingConfig
from latentuq.prior.training.train import run_training

# Two workers on two cores: each keeps to its own, since one XLA program hardly uses a second.
if _worker := os.environ.get("PYTEST_XDIST_WORKER", "")[2:]:
    if hasattr(os, "sched_setaffinity"):
        _cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {_cores[int(_worker) % len(_cores)]})
    # Workers ignore interrupts, and so would the commands that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Commands and documents run in processes of their own: what one has compiled serves the next.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _folder = tempfile.mkdtemp(prefix="latentuq-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _folder
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)


MOST_MEMORY_MAPS = 3000
"""A process that has this many after a file of tests forgets its compiled programs.

Programs take most of the memory of a test process, and each takes some maps: with 3000 of them a
process has about 1 GB.
"""


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs():
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > MOST_MEMORY_MAPS:
        compilation._programs.clear()
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":  # The C library keeps freed memory for itself until told.
            ctypes.CDLL(None).malloc_trim(0)


def blobs(seed: int, n: int, shape: tuple[int, int]) -> np.ndarray:
    """Gaussian spots at random places: a two-dimensional family of images."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    centre = rng.uniform(2, np.array(shape) - 3, (n, 2))[:, :, None, None]
    return np.exp(-((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2) / 4)


TINY = TrainingConfig(
    vae=VAESize(latent=2, blocks=1, width=16, encoder_blocks=1, encoder_width=16),
    vae_fit=FitConfig(epochs=3, batch=50),
    flow=FlowSize(depth=2, width=8),
    flow_fit=FitConfig(epochs=3, batch=50),
    model_error=ModelErrorConfig(held_out=0.2, choice=0.1, rank=4),
)


@pytest.fixture(scope="session")
def tiny_images() -> ImageSet:
    return make_image_set(blobs(0, 300, (6, 8)).astype(np.float32), source="blobs")


@pytest.fixture(scope="session")
def tiny_config() -> TrainingConfig:
    return TINY


@pytest.fixture(scope="session")
def tiny_prior(tiny_images: ImageSet) -> GenerativePrior:
    return run_training(jax.random.key(0), tiny_images, TINY, name="tiny", command="test")


@pytest.fixture(scope="session")
def model(tmp_path_factory, tiny_prior: GenerativePrior) -> str:
    """The file of the tiny prior."""
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_prior(path, tiny_prior)
    return str(path)
