"""Whole surveys: speed, memory, and the answers to a thousand digits: docs/results/scale.md."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from latentuq import GaussianNoise, InverseProblem, load_dataset, load_prior, solve, solve_many
from latentuq.calibration.classifier import load_classifier
from latentuq.core.cache import cache_dir
from latentuq.core.cells import Cells, Job, job
from latentuq.core.files import make_folder
from latentuq.forward.mask import RegionMask
from latentuq.problem.inverse import observe
from latentuq.problem.specification import Specification
from latentuq.survey.prepare import BatchRequest
from latentuq.survey.run import Tally, run_batch
from latentuq.survey.store import Store
from latentuq.survey.work import Plan
from studies.commits import commit
from studies.pages import rows
from studies.scale_answers import measure_answers

MODEL, NOISE = "mnist", 0.2
HIDDEN = RegionMask(columns=(14, 27))
FLAGS = {"mask": "columns:14-27", "noise": "20%"}
CHUNK, SAMPLED, LOOPED, WARM = 8, 160, 100, 4
"""Images of a chunk, of the surveys that measure speed, of the loop, and before that begins."""
DIGITS, GARMENTS, PREVIEWS = 1000, 50, 5000
# A megabyte, and the images between two readings of the memory.
_MB, _EVERY = 2**20, 100


class Sizes(NamedTuple):
    """How much is measured; the tests measure less."""

    sampled: int = SAMPLED
    looped: int = LOOPED
    digits: int = DIGITS
    garments: int = GARMENTS
    previews: int = PREVIEWS


def make_setup() -> dict[str, Any]:
    return {
        "model": MODEL,
        "model_checksum": load_prior(MODEL).card.checksum,
        "noise": NOISE,
    }


_SIZES = Sizes()


def make_jobs(sizes: Sizes = _SIZES, folder: Path | None = None) -> dict[str, Job]:
    # An interrupted survey is gone on with, but only by the code that began it.
    folder = folder or cache_dir() / "studies" / f"scale-{commit()}"
    return {
        "start": job(measure_start),
        "loop": job(measure_loop, sizes.looped),
        "1 worker": job(measure_speed, sizes.sampled, 1),
        "2 workers": job(measure_speed, sizes.sampled, 2),
        "answers": job(survey_answers, folder, sizes.digits, sizes.garments),
        "previews": job(measure_flatness, sizes.previews),
    }


def run_survey(
    folder: Path,
    images: np.ndarray,
    name: str,
    workers: int,
    budget: str = "default",
    watch: Callable[[Tally], None] = lambda _: None,
) -> Store:
    """Corrupts clean images and solves them all; a run that was interrupted goes on."""
    make_folder(folder)
    source, output = folder / f"{name}.npy", folder / f"{name}.zarr"
    np.save(source, images.astype(np.float32))
    plan = Plan(str(source), Specification.from_flags(FLAGS), MODEL, corrupt=True, budget=budget)
    request = BatchRequest(plan, output, chunk=CHUNK, workers=workers, resume=output.exists())
    return run_batch(request, watch)


def measure_speed(number: int, workers: int) -> dict[str, Any]:
    """Images per second once all workers are warm, and before the last ones wait for each other."""
    seen: list[tuple[float, int]] = []
    images = np.asarray(load_dataset("mnist").test_images[:number])
    started = time.monotonic()

    def watch(tally: Tally) -> None:
        if not seen or tally.done > seen[-1][1]:
            seen.append((time.monotonic() - started, tally.done))

    with tempfile.TemporaryDirectory() as fresh:
        run_survey(Path(fresh), images, "speed", workers, watch=watch)
    steady = [each for each in seen if 0.2 * number <= each[1] <= 0.9 * number]
    (first, before), (last, after) = steady[0], steady[-1]
    rate = (after - before) / (last - first)
    return {"images": number, "workers": workers, "rate": rate, "whole": number / seen[-1][0]}


def measure_loop(number: int) -> dict[str, Any]:
    """Images per second of a loop on all cores: `solve` alone, and `solve_many`."""
    prior, key = load_prior(MODEL), jax.random.key(0)
    operator, noise = HIDDEN.bind(prior.shape), GaussianNoise(NOISE)
    clean = load_dataset("mnist").test_images[: number + WARM]
    ys = [
        np.asarray(observe(jax.random.fold_in(key, place), operator, noise, jnp.asarray(x)))
        for place, x in enumerate(clean)
    ]
    rates = {}
    for name, run in {
        "solve": lambda some: [
            solve(jax.random.fold_in(key, n), InverseProblem(prior, operator, noise, y))
            for n, y in enumerate(some)
        ],
        "solve_many": lambda some: solve_many(key, prior, operator, noise, np.stack(some)),
    }.items():
        run(ys[:WARM])
        started = time.perf_counter()
        run(ys[WARM:])
        rates[name] = number / (time.perf_counter() - started)
    return {"images": number, **rates}


def measure_start() -> dict[str, Any]:
    """Seconds from the command to the first image, with nothing compiled before, and again."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "clean.npy"
        np.save(source, np.asarray(load_dataset("mnist").test_images[:4], np.float32))
        for name in ("cold", "warm"):
            output = Path(folder) / f"{name}.zarr"
            words = [sys.executable, "-m", "latentuq", "batch", str(source), "-o", str(output)]
            words += ["--corrupt", "--workers", "1", "--chunk", "4", "--json"]
            words += [text for flag, value in FLAGS.items() for text in (f"--{flag}", value)]
            environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
            started = time.perf_counter()
            with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    said = json.loads(line)
                    if said["message"].startswith("Solving with"):
                        found.setdefault(f"{name}_ready", time.perf_counter() - started)
                    if said["done"]:
                        found.setdefault(f"{name}_first", time.perf_counter() - started)
            found[f"{name}_all"] = time.perf_counter() - started
    return found


def survey_answers(folder: Path, digits: int, garments: int) -> dict[str, Any]:
    """A survey of digits with some garments mixed in, and how good its answers are."""
    data = load_dataset("mnist")
    foreign = load_dataset("fashion-mnist").test_images[:garments]
    images = np.concatenate([data.test_images[:digits], foreign])
    labels = np.concatenate([data.test_labels[:digits], np.full(garments, -1)]).astype(int)
    order = np.random.default_rng(0).permutation(len(images))
    store = run_survey(folder, images[order], "digits", workers=2)
    found = measure_answers(store, load_prior(MODEL), load_classifier(), labels[order])
    stored = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    return {**found, "bytes": stored / len(images)}


def measure_flatness(number: int) -> dict[str, Any]:
    """Time of an image and memory of a worker, from the first hundred images to the last."""
    memory: list[dict[str, float]] = []
    started = time.monotonic()

    def watch(tally: Tally) -> None:
        if tally.done >= _EVERY * (len(memory) + 1):
            here = psutil.Process()
            sizes = [_size(each) for each in here.children(recursive=True) or [here]]
            seconds = round(time.monotonic() - started, 1)
            memory.append({"done": tally.done, "megabytes": max(sizes), "seconds": seconds})

    images = np.asarray(load_dataset("mnist").test_images[:number])
    with tempfile.TemporaryDirectory() as fresh:
        store = run_survey(Path(fresh), images, "previews", 2, "preview", watch)
        seconds, status = store.column("seconds"), store.column("status")
    return {
        "images": number,
        "memory": memory,
        "medians": [float(np.median(part)) for part in np.split(seconds, number // _EVERY)],
        "status": Counter(map(str, status)),
    }


def _size(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss // _MB
    except psutil.NoSuchProcess:
        return 0


def make_values(cells: Cells) -> dict[str, Any]:
    one, two, loop = cells["1 worker"], cells["2 workers"], cells["loop"]
    answers, previews, start = cells["answers"], cells["previews"], cells["start"]
    medians, memory = previews["medians"], previews["memory"]
    early, late = medians[0], medians[-1]
    # The first readings are of workers that have not met every program yet.
    settled = memory[min(4, len(memory) - 1)]
    growth = memory[-1]["megabytes"] / settled["megabytes"]
    pair, versus = two["rate"] / one["rate"], two["rate"] / loop["solve"]
    return {
        **answers,
        **start,
        "noise": NOISE,
        **_extrapolate(two["rate"], answers["bytes"]),
        "one": one["rate"],
        "two": two["rate"],
        "sampled": two["images"],
        "looped": loop["images"],
        "solve": loop["solve"],
        "solve_many": loop["solve_many"],
        "pair": f"{pair:.2f} ({_bar(pair >= 1.8)})",
        "versus": f"{versus:.2f} ({_bar(versus >= 1)}; aim 1.3)",
        "previews": previews["images"],
        "preview_rate": previews["images"] / memory[-1]["seconds"],
        "early": early,
        "late": late,
        "flat": f"{late / early:.2f}",
        "settled": settled["done"],
        "growth": f"{growth:.2f}",
        "largest": max(each["megabytes"] for each in memory),
        "statuses": ", ".join(
            f"{answers['status'].get(word, 0)} {word}" for word in answers["status"]
        ),
        "reasons": rows("{reason} | {images}", answers["reasons"]),
        "bins": rows("{stated:.1%} | {right:.1%} | {images}", answers["bins"]),
        "memory": rows(
            "{done} | {megabytes} | {median:.2f}",
            (
                {**each, "median": medians[min(each["done"] // _EVERY, len(medians)) - 1]}
                for place, each in enumerate(memory)
                if place in (0, 1, 4) or (place + 1) % 10 == 0
            ),
        ),
    }


def _bar(holds: bool) -> str:
    return "the bar holds" if holds else "the bar is missed"


def _extrapolate(rate: float, stored: float) -> dict[str, Any]:
    """What ten million images would take on a hundred machines of two cores."""
    images, machines, per_chunk, large_chunk = 1e7, 100, 64, 1000
    seconds = images / (machines * rate)
    pixels = 4 * 28**2
    return {
        "read_rate": machines * rate * pixels / 1e6,
        "network": 1e9 / 8 / (rate * (stored + pixels)),
        "lost": large_chunk * 2 / rate / 60,
        "days": seconds / 86400,
        "terabytes": images * stored / 1e12,
        "write_rate": machines * rate * stored / 1e6,
        "tasks": images / per_chunk,
        "task_rate": machines * rate / per_chunk,
        "files": images / per_chunk,
    }
