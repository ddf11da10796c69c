"""What the page is measured on: the two priors, the problems and the settings of the methods."""

import zlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from latentuq.core.cells import Cells
from latentuq.data.digits import load_digits
from latentuq.prior.generative import GenerativePrior
from latentuq.prior.model_file import load_prior
from latentuq.problem.experiments import EXPERIMENTS, make_problem
from latentuq.problem.inverse import InverseProblem
from studies.baselines.svi import Family

THEIRS, OURS = MODELS = "mnist-paper", "mnist"
"""The paper's networks with its scalar model error, and our default prior."""
MASKED, NOISY = SEARCHED = "solidmask", "masknoise05"
"""The paper's examples of two modes and of SVI, on both of which the paper's search is run."""
RELEVANT = 0.01
"""The share of the mass from which a mode or a minimum counts."""
FAMILIES: tuple[Family, ...] = ("mean-field", "full-rank")
VARIANTS = ("annealed", "plain")
REPEATS = {2: 3, 8: 2, 32: 1}
"""How often SVI is run with fewer draws per step than the paper's 512, by the number of draws."""
RATES = (1e-3, 1e-2, 1e-1)
"""The learning rates at which SVI's stability is tested; the first is the paper's."""


class Plan(NamedTuple):
    """What the cells are measured on.

    Attributes:
        priors: The two priors by name.
        seed: The seed of everything random.
    """

    priors: dict[str, GenerativePrior]
    seed: int

    @property
    def setup(self) -> dict[str, Any]:
        """What all cells depend on."""
        models = {
            name: {"checksum": prior.card.checksum, "model_error": prior.model_error_name}
            for name, prior in self.priors.items()
        }
        return {"models": models, "seed": self.seed}

    def key(self, name: str) -> Key[Array, ""]:
        """A key of its own for every name, whatever was measured before."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32(name.encode()))

    def problem(self, model: str, corruption: str) -> InverseProblem:
        """One of the paper's problems under one of the priors."""
        return make_problem(self.priors[model], corruption, true_image(corruption))


def load_models() -> dict[str, GenerativePrior]:
    """The two priors."""
    return {THEIRS: load_prior(THEIRS).with_model_error("scalar"), OURS: load_prior(OURS)}


def true_image(corruption: str) -> Float[np.ndarray, "28 28"]:
    """The clean image of one of the paper's problems."""
    return load_digits().digit(EXPERIMENTS[corruption].image)


def by_model(cells: Cells, kind: str, *rest: str) -> dict[str, dict[str, Any]]:
    """The cells of one kind under both priors, for example those of a posterior."""
    return {model: cells[" ".join([kind, model, *rest])] for model in MODELS}
