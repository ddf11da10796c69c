"""Every choice of a training run, from TOML, flags or Python."""

import dataclasses

from latentuq.core.options import check, choice, number
from latentuq.prior.architecture import FlowSize, VAESize


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """One run of Adam, with a learning rate that rises linearly and then falls as a cosine."""

    epochs: int = number(30, 0, 1_000_000, "passes over the training images")
    batch: int = number(256, 1, 1_000_000, "images per step; small sets take fewer")
    learning_rate: float = number(1e-3, 1e-9, 10.0, "largest learning rate")
    warmup: float = number(1.0, 0.0, 1e6, "epochs of rising learning rate")
    weight_decay: float = number(0.3, 0.0, 100.0, "decoupled decay of the hidden layers' matrices")
    average: float = number(0.999, 0.0, 0.999999, "decay of the kept running average; 0: last step")


@dataclasses.dataclass(frozen=True)
class ModelErrorConfig:
    """How S_model is estimated from residuals of images that were kept from training."""

    held_out: float = number(0.05, 0.001, 0.5, "fraction of the images to measure residuals on")
    choice: float = number(0.02, 0.001, 0.4, "further fraction, to compare the estimates on")
    floor: float = number(0.02, 1e-4, 1.0, "smallest standard deviation of a pixel")
    rank: int = number(32, 1, 4096, "rank of the low-rank estimate")
    most_data: float = number(
        100.0, 1.0, 1e9, "that data dominated by the signal-dependent estimate may count for"
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """A whole training run: VAE, then flow, then model error.

    `sigma = "trainable"` fits the likelihood's scalar standard deviation with the weights;
    `"measured"` holds it at `sigma_start` and measures the residuals' rms afterwards.
    `encoder_noise` keeps the encoder from memorising the training images: the ELBO is a bound
    whatever the encoder looks at.
    """

    seed: int = number(0, 0, 2**32 - 1, "seed of everything random")
    sigma: str = choice("trainable", ("trainable", "measured"), "how sigma_model is found")
    sigma_start: float = number(0.15, 1e-4, 100.0, "first (or, if measured, fixed) sigma_model")
    encoder_noise: float = number(
        0.2, 0.0, 10.0, "noise added to what the encoder sees in training"
    )
    vae: VAESize = VAESize()
    vae_fit: FitConfig = FitConfig()
    flow: FlowSize = FlowSize()
    flow_fit: FitConfig = FitConfig(epochs=80, batch=1024, learning_rate=2e-3, weight_decay=0.1)
    model_error: ModelErrorConfig = ModelErrorConfig()

    def __post_init__(self) -> None:
        check(self)
