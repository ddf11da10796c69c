"""Rows of the table for what the paper sets or derives, rather than measures."""

from typing import Any

import numpy as np

from latentuq.forward import Blur, RegionMask
from latentuq.problem.experiments import EXPERIMENTS, SHAPE
from studies.reproduce import published
from studies.reproduce.claim import Row
from studies.reproduce.run import MODELS, NOISY, Cells

_ACTIVATIONS = {"leaky_relu": "LeakyReLU", "silu": "SiLU"}


def network_rows(cells: Cells) -> list[Row]:
    """The networks and how they were trained."""
    priors = [cells[f"prior {model}"] for model in MODELS]
    sigmas = [prior["sigma_model"] for prior in priors]
    decoders = [
        _decoder(p["vae"]["blocks"], p["block_layers"], p["vae"]["width"], _activation(p["vae"]))
        for p in priors
    ]
    flows = [_flow(p["flow"]["depth"], p["flow_layers"], p["flow"]["width"]) for p in priors]
    fits = [
        f"batch {p['vae_fit']['batch']}, rate {p['vae_fit']['learning_rate']:g}" for p in priors
    ]
    decoder = _decoder(
        published.BLOCKS, published.BLOCK_LAYERS, published.WIDTH, _ACTIVATIONS["leaky_relu"]
    )
    flow = _flow(published.COUPLINGS, published.FLOW_LAYERS, published.FLOW_WIDTH)
    fit = f"batch {published.BATCH}, rate {published.LEARNING_RATE:g}"
    return [
        Row(
            "sigma_model, trained",
            f"{published.SIGMA_MODEL:g}",
            *(f"{sigma:.3f}" for sigma in sigmas),
            differs=max(abs(sigma - published.SIGMA_MODEL) for sigma in sigmas) > 0.02,
            why="Other networks leave another error.",
        ),
        Row(
            "model error in use",
            "scalar",
            *(prior["model_error"] for prior in priors),
            differs=priors[1]["model_error"] != "scalar",
            why="One number for black borders and ink alike is wrong for both.",
        ),
        Row(
            "latent dimension",
            str(published.LATENT),
            *(str(prior["dim"]) for prior in priors),
            differs=any(prior["dim"] != published.LATENT for prior in priors),
            why="Another latent space.",
        ),
        Row(
            "decoder",
            decoder,
            *decoders,
            differs=any(found != decoder for found in decoders),
            why="Every posterior evaluation pays for the decoder, and a smooth activation has"
            " curvature everywhere.",
        ),
        Row(
            "flow",
            flow,
            *flows,
            differs=any(found != flow for found in flows),
            why="A narrow flow is nearly as good and cheaper.",
        ),
        Row(
            "training, Adam",
            fit,
            *fits,
            differs=any(found != fit for found in fits),
            why="Smaller batches make more steps per epoch.",
        ),
    ]


def _decoder(blocks: int, layers: int, width: int, activation: str) -> str:
    return f"{blocks} blocks of {layers} layers of {width}, {activation}"


def _flow(couplings: int, layers: int, width: int) -> str:
    """As the paper writes it: 8 couplings, [512, 512]."""
    return f"{couplings} couplings, [{', '.join([str(width)] * layers)}]"


def _activation(size: dict[str, Any]) -> str:
    name: str = size["activation"]
    return _ACTIVATIONS.get(name, name)


def corruption_rows(cells: Cells) -> list[Row]:
    """What was done to the images, and how well the deepest modes fit."""
    first, second = (
        1 - cells[f"posterior {model} sparse95"]["data"] / np.prod(SHAPE) for model in MODELS
    )
    noise = EXPERIMENTS[NOISY].noise_std
    blur = EXPERIMENTS["blur"].noise_std
    rows = [
        Row(
            "pixels removed, `sparse95`",
            f"{published.REMOVED:.0%}",
            f"{first:.1%}",
            f"{second:.1%}",
        ),
        *(_columns(corruption) for corruption in published.COLUMNS),
        _kernel(),
        Row(f"noise, `{NOISY}`", f"{published.NOISE:g}", f"{noise:g}", f"{noise:g}"),
        Row(
            "noise, `blur`",
            "none",
            f"{blur:g}",
            f"{blur:g}",
            differs=blur > 0,
            why="Without noise the blurred model error is a singular covariance.",
        ),
    ]
    names = ", ".join(f"`{corruption}`" for corruption in EXPERIMENTS)
    rows.append(
        Row(
            f"chi² per datum at the deepest mode: {names}",
            "not stated",
            *(" / ".join(_chi_squared(cells, model)) for model in MODELS),
            differs=True,
            why="The notebooks print that of the first minimum found, not of the lowest.",
        )
    )
    return rows


def _columns(corruption: str) -> Row:
    operator = EXPERIMENTS[corruption].make_operator()
    assert isinstance(operator, RegionMask)
    said, found = (
        "{} to {}".format(*columns) if columns else "none"
        for columns in (published.COLUMNS[corruption], operator.columns)
    )
    why = "Another mask."
    return Row(f"columns removed, `{corruption}`", said, found, found, said != found, why)


def _kernel() -> Row:
    operator = EXPERIMENTS["blur"].make_operator()
    assert isinstance(operator, Blur)
    assert operator.sigma is not None
    said, found = (
        f"standard deviation {std:g}, {side}x{side}"
        for std, side in (
            (published.KERNEL_STD, published.KERNEL_SIDE),
            (float(operator.sigma), operator.psf.shape[0]),
        )
    )
    return Row("Gaussian kernel, `blur`", said, found, found, said != found, "Another kernel.")


def _chi_squared(cells: Cells, model: str) -> list[str]:
    found = [cells[f"posterior {model} {corruption}"] for corruption in EXPERIMENTS]
    return [f"{cell['chi_squared'] / cell['data']:.2f}" for cell in found]


def formula_rows() -> list[Row]:
    """What the paper prints differently from what it means."""
    model, data = published.SIGMA_MODEL**2, published.NOISE**2
    printed, used = 1 / model + 1 / data, 1 / (model + data)
    where = f"sigma_model {published.SIGMA_MODEL:g}, noise {published.NOISE:g}"
    dim = published.LATENT
    below, counted = dim * (dim - 1) // 2 + dim + 1, dim * (dim + 3) // 2 + 1
    return [
        Row(
            f"precision of a datum at {where}",
            f"{printed:.0f} (printed formula)",
            f"{used:.2f}",
            f"{used:.2f}",
            differs=True,
            why=f"Variances add, as in the paper's own code: the printed formula weighs the data"
            f" {printed / used:.0f} times too much.",
        ),
        Row(
            "width of a minimum, sigma_n²",
            "grad_n grad_n ln p",
            "(H⁻¹)_nn",
            "(H⁻¹)_nn",
            differs=True,
            why="A variance is an inverse curvature, of H = -grad grad ln p; the printed one is"
            " negative at a minimum of -ln p.",
        ),
        Row(
            "terms of the EL2O objective",
            f"{counted} (sum over j < i: {below})",
            str(counted),
            str(counted),
            differs=below != counted,
            why="The sum over Hessian entries must be over j <= i to have the paper's own count.",
        ),
    ]
