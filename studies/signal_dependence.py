"""Adds the signal-dependent model error to a model that was trained before there was one.

`latentuq train` estimates it for new models, from the same residuals: those of the images that were
kept from training, which the model's own configuration and seed tell. Nothing else in the file
changes but the default, so posteriors under the other model errors stay as they were.
"""

import jax
import jax.numpy as jnp
import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.options import replace
from latentuq.core.tensors import read_tensors, write_tensors
from latentuq.data.image_sets import read_images
from latentuq.prior import VAE
from latentuq.prior.model_error import LOW_RANK, SIGNAL_DEPENDENT
from latentuq.prior.model_file import GAIN, MOST_DATA, embedded_models, load_prior
from latentuq.prior.training.config import TrainingConfig
from latentuq.prior.training.residuals import estimate_gain
from latentuq.prior.training.train import held_out_residuals, split_images
from latentuq.prior.vae import Decoder, Encoder

_OWN = "model_error_"


def main(model: str) -> None:
    """Writes the file of an embedded model anew."""
    if model not in embedded_models():
        known = ", ".join(sorted(embedded_models()))
        raise UserError(f"There is no embedded model {model!r}; there are {known}.")
    prior, path = load_prior(model), embedded_models()[model]
    config = replace(TrainingConfig(), dict(prior.card.training["config"]), "")
    images = read_images(prior.card.training["data"])
    keys = jax.random.split(jax.random.key(config.seed), 5)
    held_key, _ = jax.random.split(keys[3])
    split = split_images(keys[0], images, config)
    assert isinstance(prior.encoder, Encoder)
    assert isinstance(prior.decoder, Decoder)
    vae = VAE(prior.encoder, prior.decoder, jnp.zeros(()))
    held = held_out_residuals(held_key, vae, split.held_out)
    gain = estimate_gain(prior.model_errors[LOW_RANK], *held)
    print(np.round(gain, 2))
    header, arrays = read_tensors(path, "prior")
    header["architecture"]["default_model_error"] = SIGNAL_DEPENDENT
    header["metrics"]["model_error"] = SIGNAL_DEPENDENT
    others = {each: array for each, array in arrays.items() if not each.startswith(_OWN)}
    arrays = others | {
        MOST_DATA: np.asarray(config.model_error.most_data, np.float32),
        GAIN: gain.astype(np.float32),
    }
    write_tensors(path, header, arrays)
