"""What the page shows of a posterior, as JSON: all of it is what a report shows."""

import jax
import numpy as np
from jaxtyping import Array, Key
from pydantic import BaseModel

from latentuq.app.solving import Solved, report_key
from latentuq.core.randomness import host_generator, spread_keys
from latentuq.inference.verdict import ANSWERS, QUESTIONS, Verdict
from latentuq.posterior.maps import draw_images
from latentuq.posterior.posterior import Posterior
from latentuq.report.collect import collect, labelled_draws, shown_modes
from latentuq.report.content import Content
from latentuq.report.figures import data_range, heat_range, true_minus
from latentuq.report.html import show_numbers
from latentuq.web.pictures import Picture, picture, to_bytes
from latentuq.web.tasks import Draws

# Draws that the page turns over; fewer where they would be more numbers than this.
_DRAWS = 512
_MOST_NUMBERS = 2**22


class Mark(BaseModel):
    """One of the three questions of the verdict."""

    question: str
    answer: str
    standing: str
    sentence: str
    details: str


class Trust(BaseModel):
    """The verdict in plain words, its marks, and what to do."""

    word: str
    text: str
    marks: list[Mark]
    advice: list[str]


class Mode(BaseModel):
    """One possibility; the heaviest comes first."""

    weight: float
    weight_error: float
    depth: float
    chi_squared: float
    deepest: bool
    image: Picture
    std: Picture


class Answer(BaseModel):
    """A posterior as the page shows it."""

    verdict: Trust
    data: Picture
    most_probable: Picture
    mean: Picture
    std: Picture
    truth: Picture | None
    comparison: str | None
    modes: list[Mode]
    rest: float
    numbers: dict[str, str]
    learned: str
    notes: list[str]
    draws: int
    seconds: float


def make_answer(key: Key[Array, ""], solved: Solved, seconds: float) -> tuple[Answer, Draws]:
    """Everything that the page shows of a posterior, and draws for its flip-book.

    Args:
        key: The key that the posterior was solved with.
        solved: The posterior.
        seconds: How long that took.
    """
    post = solved.posterior
    content = collect(report_key(key), post, solved.truth)
    high = heat_range(content)
    draws = _make_draws(jax.random.fold_in(report_key(key), 1), post, content)
    answer = Answer(
        verdict=_trust(post.verdict),
        data=picture(content.data, *data_range(content.data)),
        most_probable=picture(content.map_image),
        mean=picture(content.mean),
        std=picture(content.std, 0.0, high),
        truth=None if content.truth is None else picture(content.truth),
        comparison=None if content.comparison is None else str(content.comparison),
        modes=[
            Mode(
                **{name: getattr(card, name) for name in ("weight", "weight_error", "depth")},
                chi_squared=card.chi_squared,
                deepest=card.deepest,
                image=picture(card.image),
                std=picture(card.std, 0.0, high),
            )
            for card in content.cards
        ],
        rest=content.rest,
        numbers=show_numbers(post),
        learned=post.diagnostics.learned,
        notes=[solved.assumed, *solved.notes],
        draws=len(draws.images),
        seconds=seconds,
    )
    return answer, draws


def _make_draws(key: Key[Array, ""], post: Posterior, content: Content) -> Draws:
    """Images of draws that know their modes, in random order; a draw may serve several times."""
    assert post.problem is not None
    n = max(16, min(_DRAWS, _MOST_NUMBERS // content.mean.size))
    label_key, order_key, image_key = jax.random.split(key, 3)
    us, modes = labelled_draws(label_key, post, n)
    order = host_generator(order_key).permutation(np.resize(np.arange(len(us)), n))
    images = draw_images(
        spread_keys(image_key, n), post.problem, jax.device_put(us[order].astype(np.float32))
    )
    images = np.asarray(images)
    low, high = min(0.0, float(images.min())), max(1.0, float(images.max()))
    places = {mode: place for place, mode in enumerate(shown_modes(post))}
    labels = np.array([places.get(int(mode), -1) for mode in modes[order]], np.int8)
    return Draws(to_bytes(images, low, high), labels, low, high)


def _trust(verdict: Verdict) -> Trust:
    marks = [
        Mark(
            question=QUESTIONS[name],
            answer=ANSWERS[mark.standing],
            standing=str(mark.standing),
            sentence=true_minus(mark.sentence),
            details=true_minus(mark.details),
        )
        for name, mark in verdict.marks.items()
    ]
    return Trust(word=verdict.word, text=str(verdict), marks=marks, advice=[*verdict.advice])
