"""What is kept of each image of a survey: names, axes and types, alike for all of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentuq.posterior.dataset import COUNTS, FLOATS, INTEGERS, OPTIONAL, image_axes

MOST_MODES = 8
"""Modes that are kept of an image: the heaviest, and the deepest in any case."""
LEVELS = (0.05, 0.16, 0.5, 0.84, 0.95)
"""The levels of the quantiles that are kept."""
# Starts of the search that are kept, for the figure of where they ended.
_MOST_STARTS = 256

RELIABLE, UNRELIABLE, FAILED = "reliable", "unreliable", "failed"
STATUSES = (RELIABLE, UNRELIABLE, FAILED)
"""What an image can be; an empty text is one that has not been solved yet."""

TEXTS = ("name", "status", "verdict", "reasons", "verdict_json", "error", "notes")
NUMBERS = (
    *(
        "log_evidence",
        "log_evidence_error",
        "uncertainty",
        "surprise",
        "seconds",
        "offset",
        "scale",
    ),
    *FLOATS,
    *OPTIONAL,
)
WHOLE_NUMBERS = ("modes_found", "map_index", *INTEGERS, *COUNTS)


class Variable(NamedTuple):
    """One array of the store, without its first axis, which is that of the images.

    Attributes:
        axes: The names of its axes.
        shape: Its shape.
        dtype: The type of its numbers, or `str`.
        missing: What stands where there is nothing.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: Any
    missing: float | int | str


def data_axes(dimensions: int) -> tuple[str, ...]:
    """Names the axes of data."""
    return tuple(f"data_{axis}" for axis in image_axes(dimensions))


@dataclass(frozen=True)
class Layout:
    """The shapes of everything that is kept of an image.

    Attributes:
        shape: The shape of the clean images.
        data_shape: The shape of the data.
        dim: The length of u.
        draws: The number of equally weighted draws of u; without any no report can be made later.
        noise: The axes of the noise's standard deviation if each image has noise of its own: those
            of `data_axes` for a map, none for a number. None if all images share the noise.
        truth: Whether the clean images are known.
    """

    shape: tuple[int, ...]
    data_shape: tuple[int, ...]
    dim: int
    draws: int
    noise: tuple[str, ...] | None = None
    truth: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every axis but that of the images."""
        return {
            **dict(zip(image_axes(len(self.shape)), self.shape, strict=True)),
            **dict(zip(data_axes(len(self.data_shape)), self.data_shape, strict=True)),
            "mode": MOST_MODES,
            "quantile": len(LEVELS),
            "latent": self.dim,
            "latent_2": self.dim,
            "draw": self.draws,
            "start": _MOST_STARTS,
        }

    @property
    def variables(self) -> dict[str, Variable]:
        """Every array of the store by its name."""
        image, mode, start = image_axes(len(self.shape)), ("mode",), ("start",)
        floats: dict[str, tuple[str, ...]] = {
            "y": data_axes(len(self.data_shape)),
            "most_probable": image,
            "mean": image,
            "std": image,
            "quantiles": ("quantile", *image),
            "mode_images": (*mode, *image),
            "modes": (*mode, "latent"),
            "weights": mode,
            "weight_errors": mode,
            "log_densities": mode,
            "chi_squared": mode,
            "el2o": mode,
        }
        integers: dict[str, tuple[str, ...]] = {}
        if self.draws:
            floats |= {"means": (*mode, "latent"), "factors": (*mode, "latent", "latent_2")}
            floats |= {"u": ("draw", "latent"), "search_log_densities": start}
            integers = {"u_modes": ("draw",), "search_modes": start}
        if self.noise is not None:
            floats["noise_std"] = self.noise
        if self.truth:
            floats["truth"] = image
        sizes = self.sizes

        def listed(names: dict[str, tuple[str, ...]], dtype: Any, missing: Any):
            for name, axes in names.items():
                yield name, Variable(axes, tuple(sizes[axis] for axis in axes), dtype, missing)

        return {
            **dict(listed(dict.fromkeys(TEXTS, ()), str, "")),
            **dict(listed(dict.fromkeys(NUMBERS, ()), np.float64, np.nan)),
            **dict(listed(dict.fromkeys(WHOLE_NUMBERS, ()), np.int32, -1)),
            **dict(listed(floats, np.float32, np.nan)),
            **dict(listed(integers, np.int16, -1)),
        }

    @property
    def image_bytes(self) -> int:
        """What one image takes before it is compressed, texts aside."""
        return sum(
            int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize
            for each in self.variables.values()
            if each.dtype is not str
        )
