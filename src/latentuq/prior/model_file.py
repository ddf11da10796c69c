"""Model files: the weights of a prior and a JSON header that says how to read them."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import latentuq
from latentuq.core.errors import UserError
from latentuq.core.options import replace
from latentuq.core.reading import explaining, read_path
from latentuq.core.tensors import TensorFile, flatten, read_tensors, unflatten, write_tensors
from latentuq.core.text import printable
from latentuq.data.scaling import BYTES, Scaling
from latentuq.prior.architecture import FlowSize, VAESize
from latentuq.prior.check import PriorCheck
from latentuq.prior.flow import init_flow
from latentuq.prior.generative import Card, GenerativePrior
from latentuq.prior.model_error import LOW_RANK, SIGNAL_DEPENDENT, ModelError
from latentuq.prior.vae import Decoder, init_vae

KIND = "prior"
FORMAT = 1
GAIN, MOST_DATA = "model_error_gain", "model_error_most_data"
"""Arrays that turn the low-rank model error of a file into the signal-dependent one."""
HELD_OUT = "held_out"
"""The array of images that were kept from training."""

_MAX_PIXELS = 2**26


class _Architecture(NamedTuple):
    """What a header says about the arrays of its file."""

    shape: tuple[int, ...]
    vae: VAESize
    flow: FlowSize
    ranks: dict[str, int]
    default_model_error: str
    scaling: Scaling
    check: PriorCheck | None


def embedded_models() -> dict[str, Path]:
    """The models that come with the package, by name."""
    folder = Path(str(resources.files("latentuq"))) / "models"
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def embedded_name(prior: GenerativePrior) -> str | None:
    """The name by which `load_prior` gives this very prior, if it comes with the package."""
    path = embedded_models().get(prior.card.name)
    return prior.card.name if path and _checksum(path) == prior.card.checksum else None


def save_prior(path: str | Path, prior: GenerativePrior) -> None:
    """Writes a trained prior with its card, in float16 where that holds a matrix exactly."""
    vae, flow = _sizes(prior)
    arrays = {}
    for name, array in flatten(_networks(prior)).items():
        half = _halved(array)
        arrays[name] = half if np.array_equal(half, array) else array
    plain = {name: e for name, e in prior.model_errors.items() if name != SIGNAL_DEPENDENT}
    arrays |= flatten(plain, "model_errors")
    if (signal := prior.model_errors.get(SIGNAL_DEPENDENT)) is not None:
        arrays[MOST_DATA] = np.asarray(signal.most_data, np.float32)
        arrays[GAIN] = np.asarray(signal.gain, np.float32)
    if prior.card.held_out is not None:
        arrays[HELD_OUT] = _packed(prior.card.held_out)
    header = {
        "kind": KIND,
        "format": FORMAT,
        "version": latentuq.__version__,
        "name": prior.card.name,
        "architecture": {
            "shape": list(prior.shape),
            "vae": dataclasses.asdict(vae),
            "flow": dataclasses.asdict(flow),
            "model_errors": {name: error.rank for name, error in plain.items()},
            "default_model_error": prior.model_error_name,
            "scaling": dataclasses.asdict(prior.scaling),
        },
        "training": dict(prior.card.training),
        "metrics": dict(prior.card.metrics),
    }
    if prior.card.check is not None:
        header["check"] = dataclasses.asdict(prior.card.check)
    write_tensors(Path(path), header, arrays)


def keep_check(name_or_path: str | Path, check: PriorCheck) -> None:
    """Writes what a check has found into the model file, whose weights stay as they are."""
    path = _find_model(name_or_path)
    file = read_tensors(path, KIND)
    write_tensors(path, {**file.header, "check": dataclasses.asdict(check)}, file.arrays)


def load_prior(name_or_path: str | Path) -> GenerativePrior:
    """Loads an embedded model by name, or a model file by path."""
    path = _find_model(name_or_path)
    file = read_tensors(path, KIND)
    with _explaining(path):
        return _build(file, _read_architecture(file.header), path)


def read_card(path: str | Path) -> dict[str, Any]:
    """Reads the header of a model file: architecture, metrics, training."""
    header = read_tensors(Path(path), KIND).header
    with _explaining(path):
        _read_architecture(header)
    return header


@contextmanager
def _explaining(path: str | Path) -> Iterator[None]:
    """Turns whatever a header leads to into one sentence that names the file."""
    try:
        with explaining("bad header"):
            yield
    except UserError as error:
        raise UserError(f"{path} is not a usable model: {error}") from None


def round_to_half(prior: GenerativePrior) -> GenerativePrior:
    """The prior as it comes back from a file with float16 matrices."""
    networks = _networks(prior)
    arrays = {name: _halved(array) for name, array in flatten(networks).items()}
    return dataclasses.replace(prior, **unflatten(networks, arrays))


def _networks(prior: GenerativePrior) -> dict[str, Any]:
    networks = {"encoder": prior.encoder, "decoder": prior.decoder, "flow": prior.flow}
    return {name: network for name, network in networks.items() if network is not None}


def _sizes(prior: GenerativePrior) -> tuple[VAESize, FlowSize]:
    """The sizes that `init_vae` and `init_flow` made the networks of a trained prior with."""
    encoder, decoder, flow = prior.encoder, prior.decoder, prior.flow
    if encoder is None or not isinstance(decoder, Decoder):
        raise UserError(f"{prior!r} was not trained by latentuq: a model file cannot hold it.")
    vae = VAESize(
        latent=prior.dim,
        blocks=len(decoder.network.blocks[0].bias),
        width=decoder.network.entry.bias.size,
        encoder_blocks=len(encoder.network.blocks[0].bias),
        encoder_width=encoder.network.entry.bias.size,
        activation=decoder.network.activation,
        output=decoder.output,
    )
    if flow is None:
        return vae, FlowSize(depth=0)
    depth, width = flow.couplings.layers[0].bias.shape
    return vae, FlowSize(depth, width, flow.activation)


def _halved(array: np.ndarray) -> np.ndarray:
    if array.ndim < 2 or array.dtype != np.float32 or np.max(np.abs(array), initial=0.0) > 6e4:
        return array
    return array.astype(np.float16)


def _find_model(name_or_path: str | Path) -> Path:
    """The file of an embedded model, or the model file itself."""
    embedded = embedded_models()
    if str(name_or_path) in embedded:
        return embedded[str(name_or_path)]
    path = read_path(name_or_path)
    if not path.is_file():
        raise UserError(
            f"There is no model {str(name_or_path)!r}: it is neither a file nor one of the "
            f"embedded models ({', '.join(embedded) or 'none'})."
        )
    return path


def _read_architecture(header: dict[str, Any]) -> _Architecture:
    if header["format"] != FORMAT:
        raise UserError(f"its format is {header['format']}, this latentuq reads {FORMAT}.")
    if not all(isinstance(header[name], dict) for name in ("architecture", "metrics", "training")):
        raise UserError("bad header: architecture, metrics and training are not all tables.")
    if not isinstance(header["name"], str):
        raise UserError("bad header: its name is not text.")
    table = header["architecture"]
    shape = tuple(int(n) for n in table["shape"])
    if not shape or min(shape) < 1 or np.prod(shape, dtype=float) > _MAX_PIXELS:
        raise UserError(f"its image shape {shape} is impossible.")
    ranks = {str(name): int(rank) for name, rank in table["model_errors"].items()}
    if not all(0 <= rank <= _MAX_PIXELS for rank in ranks.values()):
        raise UserError("the rank of a model error is impossible.")
    if table["default_model_error"] not in {*ranks, SIGNAL_DEPENDENT}:
        raise UserError(f"its default model error {table['default_model_error']!r} is missing.")
    return _Architecture(
        shape=shape,
        vae=replace(VAESize(), table["vae"], "vae."),
        flow=replace(FlowSize(), table["flow"], "flow."),
        ranks=ranks,
        default_model_error=table["default_model_error"],
        scaling=Scaling(**table["scaling"]),
        check=_read_check(header["check"]) if "check" in header else None,
    )


def _read_check(table: Any) -> PriorCheck:
    check = replace(PriorCheck(), table, "check.")
    if not check.corruption.isprintable():
        raise UserError("check.corruption is not printable text.")
    return check


def _build(file: TensorFile, architecture: _Architecture, path: Path) -> GenerativePrior:
    # Shapes only: nothing is allocated before the file has shown arrays of these very shapes.
    size, flow_size, shape = architecture.vae, architecture.flow, architecture.shape
    dim = size.latent
    key = jax.eval_shape(lambda: jax.random.key(0))
    vae = eqx.filter_eval_shape(init_vae, key, shape, size, 1.0)
    skeleton: dict[str, Any] = {"encoder": vae.encoder, "decoder": vae.decoder}
    if flow_size.depth:
        latent = jax.ShapeDtypeStruct((dim,), jnp.float32)
        skeleton["flow"] = eqx.filter_eval_shape(init_flow, key, flow_size, latent, latent)
    networks = unflatten(skeleton, file.arrays)
    errors = {
        name: ModelError(
            jax.ShapeDtypeStruct(shape, jnp.float32),  # pyright: ignore[reportArgumentType]
            jax.ShapeDtypeStruct((rank, *shape), jnp.float32),  # pyright: ignore[reportArgumentType]
        )
        for name, rank in architecture.ranks.items()
    }
    errors = unflatten(errors, file.arrays, "model_errors")
    for name, error in errors.items():
        if np.any(np.asarray(error.variance) < 0):
            raise UserError(f"the model error {name!r} has a negative variance.")
    if GAIN in file.arrays:
        errors[SIGNAL_DEPENDENT] = _signal_dependent(errors, file.arrays)
    elif architecture.default_model_error == SIGNAL_DEPENDENT:
        raise UserError("the gain of its default model error is missing.")
    if "flow" in networks and not np.all(np.asarray(networks["flow"].scale) > 0):
        raise UserError("the scale of the flow is not positive.")
    return GenerativePrior(
        decoder=networks["decoder"],
        flow=networks.get("flow"),
        model_error=errors[architecture.default_model_error],
        model_errors=errors,
        encoder=networks["encoder"],
        dim=dim,
        shape=shape,
        scaling=architecture.scaling,
        card=Card(
            name=printable(file.header["name"]),
            metrics=file.header["metrics"],
            training=file.header["training"],
            check=architecture.check,
            held_out=_unpacked(file.arrays.get(HELD_OUT), shape),
            checksum=_checksum(path),
            path=path.absolute(),
        ),
    )


def _signal_dependent(
    errors: dict[str, ModelError], arrays: Mapping[str, np.ndarray]
) -> ModelError:
    if LOW_RANK not in errors:
        raise UserError(f"it has a gain, but no model error {LOW_RANK!r} to go with it.")
    gain, most_data = arrays[GAIN], arrays.get(MOST_DATA, np.zeros(0))
    if gain.ndim != 1 or len(gain) < 2 or not np.all((gain > 0) & (gain < np.inf)):
        raise UserError("the gain of its model error is not a list of positive numbers.")
    if most_data.shape != () or not 1 <= most_data < np.inf:
        raise UserError("the most data of its model error are not a number of at least 1.")
    low_rank, gain = errors[LOW_RANK], jnp.asarray(gain, jnp.float32)
    return ModelError(low_rank.variance, low_rank.factors, gain, float(most_data))


def _packed(images: Float[np.ndarray, "n *shape"]) -> np.ndarray:
    """Images in 8 bits if that is what they were made of, or else in half precision."""
    bytes_ = np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)
    lossless = np.allclose(BYTES.to_unit(bytes_), images, rtol=0, atol=1e-6)
    return bytes_ if lossless else images.astype(np.float16)


def _unpacked(
    array: np.ndarray | None, shape: tuple[int, ...]
) -> Float[np.ndarray, "n *shape"] | None:
    if array is None:
        return None
    if array.shape[1:] != shape or array.dtype not in (np.uint8, np.float16):
        raise UserError(f"its held-out images are {array.dtype}{list(array.shape)}.")
    images = BYTES.to_unit(array) if array.dtype == np.uint8 else array.astype(np.float32)
    if not np.isfinite(images).all():
        raise UserError("its held-out images contain NaN or infinite values.")
    return images


def _checksum(path: Path) -> str:
    """SHA-256 of the arrays of a file, without its header: notes may be added to that."""
    contents = path.read_bytes()
    return hashlib.sha256(contents[8 + int.from_bytes(contents[:8], "little") :]).hexdigest()
