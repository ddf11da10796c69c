"""Datasets and image files: everything that enters as pixels and leaves as values in [0, 1]."""

from latentuq.data.datasets import Dataset, fetch, load_dataset
from latentuq.data.digits import Digits, load_digits
from latentuq.data.image_sets import ImageSet, read_images
from latentuq.data.images import read_image, write_image
from latentuq.data.scaling import Scaling

__all__ = [
    "Dataset",
    "Digits",
    "ImageSet",
    "Scaling",
    "fetch",
    "load_dataset",
    "load_digits",
    "read_image",
    "read_images",
    "write_image",
]
