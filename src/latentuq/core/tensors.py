"""Pytrees of arrays to and from safetensors files with a JSON header: data, never code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from latentuq.core.errors import UserError
from latentuq.core.files import write_file
from latentuq.core.reading import existing_file, explaining

T = TypeVar("T")


class TensorFile(NamedTuple):
    """Named arrays and the JSON header that came with them."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def write_tensors(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays and header to one file, aside first and then renamed into place."""
    from safetensors.numpy import save

    contents = save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"latentuq": json.dumps(dict(header), allow_nan=False)},
    )
    write_file(path, contents)


def read_tensors(path: Path, kind: str) -> TensorFile:
    """Reads a file of the given kind; everything that is not one is refused in one sentence."""
    from safetensors import safe_open

    path = existing_file(path)
    with (
        explaining(f"{path} is truncated or not a safetensors file"),
        safe_open(str(path), framework="numpy") as file,
    ):
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        header = json.loads(metadata["latentuq"])
        found = header["kind"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise UserError(f"{path} is a safetensors file, but latentuq did not write it.") from None
    if found != kind:
        raise UserError(f"{path} holds a latentuq {found!s:.20}, not a {kind}.")
    return TensorFile(header, arrays)


def flatten(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Names every array of a pytree by its path, such as `flow.couplings.layers.0.weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(prefix, path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: T, arrays: Mapping[str, np.ndarray], prefix: str = "") -> T:
    """Fills the array positions of `like` (arrays or shapes) after checking each."""

    def fill(path, leaf):
        name = _name(prefix, path)
        if name not in arrays:
            raise UserError(f"The array {name} is missing.")
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype.kind != np.dtype(leaf.dtype).kind:
            raise UserError(
                f"The array {name} is {array.dtype}{list(array.shape)} where "
                f"{leaf.dtype}{list(leaf.shape)} is expected."
            )
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise UserError(f"The array {name} contains NaN or infinite values.")
        # Converted here: JAX would compile that for each shape.
        return jax.device_put(array.astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(fill, like)


def _name(prefix: str, path: tuple) -> str:
    return ".".join(filter(None, (prefix, jax.tree_util.keystr(path, simple=True, separator="."))))
