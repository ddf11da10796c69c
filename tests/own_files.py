"""Files as users have them: counts, photos and painted masks, made from a digit of the package."""

import dataclasses
from pathlib import Path

import numpy as np
from PIL import Image

from latentuq.data.digits import load_digits
from latentuq.data.scaling import Scaling
from latentuq.prior.model_file import load_prior, save_prior

COUNTS = Scaling(100.0, 3000.0)
"""Black is 100 counts and white 3,100."""
NOISE = 60.0
"""Standard deviation of the noise in counts."""


def write_image(path: Path, image: np.ndarray) -> None:
    """Writes an array as the kind of file that its name tells; floats are white at 1 in PNG."""
    if path.suffix == ".npy":
        np.save(path, image)
        return
    if path.suffix == ".png" and image.dtype.kind == "f":
        image = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    Image.fromarray(image.astype(np.float32) if image.dtype.kind == "f" else image).save(path)


def digit() -> np.ndarray:
    """A clean digit, black at 0 and white at 1."""
    return np.asarray(load_digits().digit(6), np.float64)


def make_model_of_counts(path: Path) -> None:
    """The prior of digits as it would be if it had been trained on counts."""
    save_prior(path, dataclasses.replace(load_prior("mnist"), scaling=COUNTS))


def make_counts(folder: Path) -> dict[str, Path]:
    """The digit in counts with noise, as three kinds of files."""
    from astropy.io import fits

    noise = np.random.default_rng(0).normal(scale=NOISE, size=(28, 28))
    counts = COUNTS.from_unit(digit()) + noise
    header = fits.Header({"BUNIT": "adu", "CRVAL1": 150.1, "CTYPE1": "RA---TAN"})
    whole = np.rint(np.clip(counts, 0, None)).astype(np.uint16)
    files = {name: folder / f"{name.replace(' ', '-')}" for name in ("float.fits", "uint16.fits")}
    fits.PrimaryHDU(counts.astype(np.float32), header).writeto(files["float.fits"])
    fits.PrimaryHDU(whole, header).writeto(files["uint16.fits"])
    files["float.npy"] = folder / "float.npy"
    np.save(files["float.npy"], counts)
    return files


def make_photo(path: Path) -> None:
    """A phone photo: dark ink on white paper, 300 x 400 pixels, in colour, as JPEG."""
    large = np.asarray(
        Image.fromarray((255 * digit()).astype(np.uint8)).resize(
            (300, 300), Image.Resampling.BICUBIC
        )
    )
    paper = np.full((300, 400), 245.0)
    paper[:, 50:350] -= 0.9 * large
    paper += np.random.default_rng(1).normal(scale=3, size=paper.shape)
    grey = np.clip(paper, 0, 255)[..., None] * [1.0, 0.99, 0.97]
    Image.fromarray(grey.astype(np.uint8)).save(path, quality=90)


def make_soft_mask(path: Path) -> None:
    """A painted mask of the size of the photo, with a soft edge: its right part is missing."""
    columns = np.arange(400)
    edge = np.clip((230 - columns) / 6 + 0.5, 0, 1)
    Image.fromarray(np.tile((255 * edge).astype(np.uint8), (300, 1))).save(path)
