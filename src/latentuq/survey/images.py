"""The images of a survey, each with the mask and the noise that are its own."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.app.solving import Given
from latentuq.core.errors import UserError
from latentuq.core.reading import existing_file
from latentuq.data.images import split_extension
from latentuq.data.stacks import Stack, open_stack
from latentuq.problem.specification import Specification, harden_mask

_HIDING = {"mask": "mask", "quality": "flags"}
_NOISES = ("std", "variance")


@dataclasses.dataclass(frozen=True, eq=False)
class Survey:
    """Images, and what belongs to each of them.

    Attributes:
        images: The images.
        specification: What all images share.
        masks: A mask for each image, by the kind of the masks.
        noises: A map of the noise for each image, by what it is a map of.
    """

    images: Stack
    specification: Specification
    masks: dict[str, Stack]
    noises: dict[str, Stack]

    def __len__(self) -> int:
        return len(self.images)

    def given(self, image: int) -> Given:
        """Reads one image, its masks and its noise."""
        raw = self.images[image]
        missing = None
        for kind, stack in self.masks.items():
            read, name = stack[image], stack.name(image)
            hidden = read != 0 if kind == "quality" else ~harden_mask(read, name)
            missing = hidden if missing is None else missing | hidden
        noise = {name: stack[image] for name, stack in self.noises.items()} or None
        return Given(raw, self.images.name(image), missing, noise)

    @property
    def identity(self) -> dict[str, Any]:
        """What the results depend on: checksums of all images, masks and maps, and the problem."""
        stated = self.specification
        found = {
            "images": self.images.checksum(),
            "operators": _described(stated.operators),
            "noise": _described(stated.noise),
            "units": dataclasses.asdict(stated.units),
            "model error": stated.model_error,
            "scale of the noise": stated.noise_scale,
        }
        own = self.masks | self.noises
        return found | {f"{name} of each image": stack.checksum() for name, stack in own.items()}


def open_survey(path: str | Path, specification: Specification) -> Survey:
    """Opens the images, and finds out which masks and maps of the noise are one for each image.

    A file of masks, or of maps, with one more axis than an image has one for each image.
    """
    images = open_stack(path)
    masks, operators = {}, []
    for table in specification.operators:
        kind = table["kind"]
        stack = _one_each(table.get(_HIDING.get(kind, "")), images)
        if stack is None:
            operators.append(table)
        elif kind in masks:
            raise UserError(f"There are two kinds of {kind} for each image: join them into one.")
        else:
            masks[kind] = stack
    noises = {
        name: stack
        for name, value in specification.noise.items()
        if name in _NOISES and (stack := _one_each(value, images)) is not None
    }
    shared = dataclasses.replace(
        specification,
        operators=operators or Specification().operators,
        noise={"std": 0.0} if noises else specification.noise,
    )
    return Survey(images, shared, masks, noises)


def _one_each(value: object, images: Stack) -> Stack | None:
    """The stack that a file holds if that has one entry for each image; None for anything else."""
    if not isinstance(value, Path):
        return None
    try:
        stack = open_stack(value)
    except UserError:
        return None  # Whoever reads it as a single array says what is wrong.
    # A picture alone, perhaps in a file that could have pages, is for all images.
    if len(stack.shape) < min(2, len(images.shape)) or len(stack.files) == len(stack) == 1:
        return None
    if len(stack) != len(images):
        raise UserError(
            f"{value} holds {len(stack)} arrays, but there are {len(images)} images: give one for"
            " all images, or one for each."
        )
    return stack


def _described(value: Any) -> Any:
    """A table as JSON; arrays and files are replaced by checksums of their contents."""
    if isinstance(value, Mapping):
        return {str(name): _described(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if isinstance(value, Path):
        path, part = split_extension(value)
        with existing_file(path).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return f"{'file' if part is None else f'[{part}] of a file'} of SHA-256 {content}"
    if isinstance(value, np.ndarray):
        return f"array of SHA-256 {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    return value
