import jax
import pytest

import latentuq as lu
from latentuq.prior.model_file import load_prior
from latentuq.problem.specification import Specification
from surveys import FLAGS, SHAPE, faked, noisy_images

pytest.importorskip("zarr")


@pytest.fixture(scope="session")
def noisy(tiny_images):
    """Twelve images with noise."""
    return noisy_images(tiny_images, 12)


@pytest.fixture(scope="session")
def answer(model, noisy):
    """The posterior of the first of them."""
    operator, noise = Specification.from_flags(FLAGS).build(SHAPE)
    problem = lu.InverseProblem(load_prior(model), operator, noise, noisy[0])
    return lu.solve(jax.random.key(0), problem, budget="preview")


@pytest.fixture
def quick(monkeypatch, answer):
    """Solving takes no time: every image has the answer to the first one."""
    monkeypatch.setattr("latentuq.app.solving.solve", faked(answer))
