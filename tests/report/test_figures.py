"""What figures show, and what their axes leave out."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentuq.inference.mixture import Defensive, gaussian_mixture
from latentuq.inference.result import ProbeRecord
from latentuq.report.collect import _members
from latentuq.report.content import Component, Content, LatentView, ModeCard, Slice
from latentuq.report.figures import draw_latent, draw_search, draw_slices, true_minus

IMAGE = np.full((4, 5), 0.5)
STEPS = np.linspace(-3, 3, 5)


def make_content(
    search_values=(0.0, 1.0), exact=(4.0, 1.0, 0.0, 1.0, 4.0), mode=(0, 0, 0)
) -> Content:
    return Content(
        data=IMAGE,
        map_image=IMAGE,
        mean=IMAGE,
        std=IMAGE,
        truth=None,
        comparison=None,
        cards=(ModeCard(IMAGE, 1.0, 0.1, 3.0, 1.0, True, IMAGE, IMAGE[None], 9),),
        rest=0.0,
        samples=IMAGE[None],
        replicates=IMAGE[None],
        components=(Component(0.5, IMAGE, IMAGE),),
        latent=LatentView(np.eye(3, 2), np.array(mode), np.zeros((1, 2)), False),
        search_values=np.array(search_values, float),
        search_modes=np.zeros(len(search_values), int),
        slices=(Slice("widest axis", 1.0, STEPS, np.array(exact)),),
    )


@pytest.mark.parametrize("values", [(-5.6, 200), (-0.4, 90), (-700, 3), (20, 5000)])
def test_a_wide_search_has_ticks_around_all_of_it(values):
    (axis,) = draw_search(make_content(search_values=values)).axes
    ticks, (low, high) = axis.get_yticks(), axis.get_ylim()
    assert ticks[0] <= values[0] <= values[1] <= high
    assert low <= ticks[0]
    assert len(ticks) >= 3
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert all(
        label.startswith("−") == (tick < 0) for label, tick in zip(labels, ticks, strict=True)
    )


@pytest.mark.parametrize("lowest", [0.0, -3.0, -20.0])
def test_a_slice_shows_the_exact_curve_below_its_centre(lowest):
    (axis,) = draw_slices(make_content(exact=(90.0, 1.0, 0.0, lowest, np.inf)).slices).axes
    low, high = axis.get_ylim()
    assert low < lowest
    assert 5 < high < 13


@pytest.mark.parametrize(("mode", "others"), [((0, 0, 0), False), ((0, -1, 0), True)])
def test_the_latent_figure_explains_its_marks(mode, others):
    figure = draw_latent(make_content(mode=mode))
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["draws", "modes"] + ["draws of no mode shown"] * others
    (axis,) = figure.axes
    marks = max(each.get_zorder() for each in axis.collections)
    assert marks > max(line.get_zorder() for line in axis.lines)


def make_posterior(probes: ProbeRecord) -> Any:
    """As much of one as a card reads: two Gaussians, half of the draws in each."""
    modes = np.array([[-2.0, 0.0], [2.0, 0.0]], np.float32)
    rng = np.random.default_rng(0)
    draws = (np.repeat(modes, 50, axis=0) + 0.3 * rng.normal(size=(100, 2))).astype(np.float32)
    mixture = gaussian_mixture(jnp.ones(2) / 2, modes, jnp.tile(0.09 * jnp.eye(2), (2, 1, 1)))
    inference = SimpleNamespace(
        probes=probes, proposal=Defensive(mixture), membership=jnp.eye(2, dtype=jnp.float32)
    )
    return SimpleNamespace(
        inference=inference, modes=modes, draws=draws, log_weights=np.full(100, -np.log(100))
    )


def test_cards_show_draws_that_were_followed_to_their_mode():
    points = jnp.arange(10.0).reshape(5, 2)
    post = make_posterior(ProbeRecord(points, jnp.array([0, 0, 0, -1, 0])))
    first, second = _members(jax.random.key(0), post, [0, 1])
    np.testing.assert_array_equal(first[np.argsort(first[:, 0])], points[jnp.array([0, 1, 2, 4])])
    # None ended in the second: its neighbours' draws are not its own.
    np.testing.assert_array_equal(second, post.modes[1:])


def test_cards_show_draws_of_their_component_where_none_was_followed():
    post = make_posterior(ProbeRecord(jnp.zeros((0, 2)), jnp.zeros(0, int)))
    members = _members(jax.random.key(0), post, [0, 1])
    for shown, side in zip(members, (-1, 1), strict=True):
        assert np.all(side * shown[:, 0] > 0)
        assert len(np.unique(shown, axis=0)) > 40


def test_negative_numbers_have_a_true_minus():
    assert true_minus("-0.25 to 1.1, x-3, 1e-06, (-2)") == "−0.25 to 1.1, x-3, 1e-06, (−2)"
