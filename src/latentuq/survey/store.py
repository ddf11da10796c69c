"""The store of a survey: a Zarr group that xarray opens, and a record of what is finished.

Every array has the images along its first axis, in chunks of one size. A chunk is written by one
worker, which is the only one that writes to these files, and counts as finished when its marker is
there: a file in the hidden folder `.run` that is written once all arrays are on disk.
"""

import dataclasses
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from latentuq.core.cleaning import cleaning
from latentuq.core.errors import UserError
from latentuq.core.files import write_file
from latentuq.core.reading import explaining, read_path, reason
from latentuq.posterior.file import pack_problem
from latentuq.problem.inverse import InverseProblem
from latentuq.survey.layout import LEVELS, Layout
from latentuq.survey.rows import Row

KIND, FORMAT = "latentuq survey", 1
_RUN = ".run"
_HEAD = "zarr.json"


def needs_zarr() -> Any:
    """The package zarr, or a sentence on how to get it."""
    try:
        import zarr
    except ImportError as error:
        raise UserError(
            "A survey needs Zarr and Dask: install them with pip install latentuq[batch]."
        ) from error
    return zarr


@dataclasses.dataclass(frozen=True, eq=False)
class Store:
    """A store that exists, or one as it is to be made.

    Attributes:
        path: Its folder.
        layout: What is kept of each image.
        images: The number of images.
        chunk: The number of images of a chunk.
        identity: Everything that the results depend on, by name.
        provenance: What else is known about its making.
    """

    path: Path
    layout: Layout
    images: int
    chunk: int
    identity: Mapping[str, Any]
    provenance: Mapping[str, str]

    @property
    def run(self) -> Path:
        """The folder of markers, and of what workers say of their progress."""
        return self.path / _RUN

    @property
    def chunks(self) -> range:
        """The numbers of all chunks."""
        return range(-(-self.images // self.chunk))

    def members(self, chunk: int) -> range:
        """The images of a chunk."""
        return range(chunk * self.chunk, min((chunk + 1) * self.chunk, self.images))

    @property
    def page(self) -> Path:
        """The file of the page on the survey."""
        return self.path / "summary.html"

    def marker(self, chunk: int) -> Path:
        """The file that says that a chunk is finished."""
        return self.run / f"{chunk:08d}.done"

    def finished(self) -> dict[int, dict[str, int]]:
        """The chunks that are finished, and how many of their images are what."""
        found = {}
        # One that was being written when its process was killed has a dot in front.
        for marker in sorted(self.run.glob("[0-9]*.done")):
            with explaining(f"{marker} is damaged: remove it, and --resume solves its images anew"):
                chunk, counts = int(marker.stem), json.loads(marker.read_text())
                if sum(counts.values()) != len(self.members(chunk)):
                    raise ValueError("it counts other images than those of its chunk")
                found[chunk] = counts
        return found

    def write(self, chunk: int, rows: Sequence[Row], counts: Mapping[str, int]) -> None:
        """Writes the rows of a chunk, then its marker.

        Raises:
            UserError: The disk is full, or refuses for another reason.
        """
        first = chunk * self.chunk
        try:
            for name, variable in self.layout.variables.items():
                values: Any = [row[name] for row in rows]
                dtype = object if variable.dtype is str else variable.dtype
                self._arrays[name][first : first + len(rows)] = np.array(values, dtype)
            self._reach_disk(chunk)
        except OSError as error:
            raise UserError(f"Cannot write {self.path}: {reason(error)}.") from error
        write_file(self.marker(chunk), json.dumps(counts))

    def row(self, image: int, names: Iterable[str] = ()) -> dict[str, np.ndarray]:
        """What was kept of one image: all of it, or what has these names."""
        with explaining(f"{self.path} is damaged"):
            chosen = names or self.layout.variables
            return {name: np.asarray(self._arrays[name][image]) for name in chosen}

    def column(self, name: str) -> np.ndarray:
        """One of the numbers or texts of all images."""
        with explaining(f"{self.path} is damaged"):
            return np.asarray(self._arrays[name][:])

    @cached_property
    def _arrays(self) -> Any:
        return needs_zarr().open_group(str(self.path), mode="r+")

    def _reach_disk(self, chunk: int) -> None:
        """Waits until the files of a chunk are on the disk itself, and not only on their way."""
        for name in self.layout.variables:
            place = self.path / name / "c" / str(chunk)
            for file in place.rglob("*") if place.is_dir() else [place]:
                if file.is_file():  # Of what is missing everywhere there is no file.
                    handle = os.open(file, os.O_RDONLY)
                    try:
                        os.fsync(handle)
                    finally:
                        os.close(handle)


def is_store(path: Path) -> bool:
    """Whether a folder is a store of ours, finished or not."""
    try:
        return json.loads((path / _HEAD).read_text())["attributes"]["kind"] == KIND
    except (OSError, ValueError, KeyError, TypeError):
        return False


def create_store(store: Store, problem: InverseProblem) -> None:
    """Makes an empty store, all of it or nothing, with the problem of one of its images."""
    new = store.path.with_name(f".{store.path.name}.latentuq-new")
    shutil.rmtree(new, ignore_errors=True)
    with cleaning(lambda: shutil.rmtree(new, ignore_errors=True)):
        try:
            _fill(store, new, problem)
            if store.path.exists():  # Not before the new one is there.
                shutil.rmtree(store.path)
            os.rename(new, store.path)
        except OSError as error:
            raise UserError(f"Cannot write {store.path}: {reason(error)}.") from error


def open_store(path: str | Path) -> Store:
    """Opens a store.

    Raises:
        UserError: There is none, it is damaged, or of another version.
    """
    found = read_path(path)
    if not found.exists():
        raise UserError(f"There is no folder {found}.")
    if not is_store(found):
        raise UserError(f"{found} is not a store that latentuq batch has made.")
    with explaining(f"{found} is damaged"):
        attributes = json.loads((found / _HEAD).read_text())["attributes"]
        if attributes["format"] != FORMAT:
            raise UserError(
                f"{found} has format {attributes['format']}; this latentuq reads {FORMAT}."
            )
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(attributes["layout"]).items()
        }
        return Store(
            found,
            Layout(**fields),
            attributes["images"],
            attributes["chunk"],
            json.loads(attributes["identity"]),
            json.loads(attributes["provenance"]),
        )


def read_problem(store: Store) -> tuple[str, dict[str, np.ndarray]]:
    """The text of a problem file that describes the problem of one image, and its arrays."""
    with explaining(f"{store.path} is damaged"):
        group = needs_zarr().open_group(str(store.path / "problem"), mode="r")
        return group.attrs["toml"], {name: array[...] for name, array in group.arrays()}


def _fill(store: Store, folder: Path, problem: InverseProblem) -> None:
    zarr = needs_zarr()
    group = zarr.open_group(str(folder), mode="w", zarr_format=3)
    group.attrs.update(
        {
            "kind": KIND,
            "format": FORMAT,
            "images": store.images,
            "chunk": store.chunk,
            # As text, which every format that xarray writes can hold.
            "layout": json.dumps(dataclasses.asdict(store.layout)),
            "identity": json.dumps(dict(store.identity)),
            "provenance": json.dumps(dict(store.provenance)),
        }
    )
    for name, variable in store.layout.variables.items():
        group.create_array(
            name,
            shape=(store.images, *variable.shape),
            chunks=(store.chunk, *(max(length, 1) for length in variable.shape)),
            dtype=variable.dtype,
            fill_value=variable.missing,
            dimension_names=("image", *variable.axes),
        )
    quantile = group.create_array(
        "quantile", shape=(len(LEVELS),), dtype=np.float64, dimension_names=("quantile",)
    )
    quantile[:] = LEVELS
    stored = pack_problem(problem)
    described = group.create_group("problem", attributes={"toml": stored.attrs["toml"]})
    for name, values in stored.items():
        array = described.create_array(
            str(name), data=values.values, dimension_names=[str(dim) for dim in values.dims]
        )
        assert array.shape == values.shape
    with warnings.catch_warnings(action="ignore"):  # Other programs than zarr may ignore it.
        zarr.consolidate_metadata(str(folder))
    (folder / _RUN).mkdir()
