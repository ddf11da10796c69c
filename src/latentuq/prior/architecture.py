"""Sizes of the networks: all that is needed, beside the weights, to rebuild a prior."""

import dataclasses

from latentuq.core.options import choice, number

# The names of `networks.ACTIVATIONS`, without JAX: commands that merely parse flags need none.
ACTIVATIONS = ("silu", "gelu", "tanh", "softplus", "leaky_relu")


@dataclasses.dataclass(frozen=True)
class VAESize:
    """Encoder and decoder: residual networks of fully connected layers."""

    latent: int = number(10, 1, 4096, "dimension of the latent")
    blocks: int = number(2, 1, 256, "residual blocks of the decoder")
    width: int = number(256, 1, 65536, "width of the decoder")
    encoder_blocks: int = number(3, 1, 256, "residual blocks of the encoder")
    encoder_width: int = number(512, 1, 65536, "width of the encoder")
    activation: str = choice("silu", ACTIVATIONS, "activation of encoder and decoder")
    output: str = choice("sigmoid", ("sigmoid", "linear"), "last layer of the decoder")


@dataclasses.dataclass(frozen=True)
class FlowSize:
    """RealNVP: affine couplings, each a perceptron with two hidden layers."""

    depth: int = number(8, 0, 256, "couplings of the flow; 0 for no flow")
    width: int = number(64, 1, 65536, "width of the couplings' two hidden layers")
    activation: str = choice("silu", ACTIVATIONS, "activation of the flow")
