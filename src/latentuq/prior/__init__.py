"""VAE, flow, model error, and the generative prior they make together."""

from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.flow import Flow, init_flow, standard_normal_log_prob
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import ModelError, make_model_error
from latentuq.prior.vae import VAE, Decoder, Encoder, init_vae

__all__ = [
    "VAE",
    "Card",
    "Decoder",
    "Encoder",
    "Flow",
    "FlowSize",
    "GenerativePrior",
    "ModelError",
    "VAESize",
    "init_flow",
    "init_vae",
    "make_model_error",
    "standard_normal_log_prob",
]
