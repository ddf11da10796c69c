"""One page on a prior: is it any good, how do we know, and what to do."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from latentuq.calibration.check import Checked, per_image
from latentuq.calibration.examples import Pixels
from latentuq.calibration.measure import BINS, histogram
from latentuq.report.figures import TEXT, make_plot, render_svg
from latentuq.report.html import inline_plot, picture, row, section, sheet, show_advice, table, wrap
from latentuq.report.palette import MODES, OTHER

_GROUPS = {
    "hidden": "hidden pixels",
    "unsure": "hidden pixels that the answer is unsure of",
    "seen": "seen pixels",
}


def make_page(
    checked: Checked,
    samples: Float[np.ndarray, "n height width"],
    examples: Sequence[Mapping[str, Pixels]],
    provenance: Mapping[str, str],
) -> str:
    """The page of a check.

    Args:
        checked: What the check has found.
        samples: Images of the prior.
        examples: The panels of some held-out images, by name.
        provenance: Command, model and the like, by name.
    """
    name = provenance["model"]
    shown = [row((picture(p, n) for n, p in each.items()), "large") for each in examples]
    sections = [
        section("", _verdict(checked)),
        section("Coverage", _coverage(checked.facts)),
        section("", f'<div class="plots">{_plots(checked)}</div>'),
        section("The other numbers", table(_numbers(checked))),
        section("Held-out images and their reconstructions", "".join(shown)),
        section("Samples of the prior", sheet(samples, "sample", "tiny")),
        section("How this was made", table(provenance)),
    ]
    return wrap(f"Is the prior {name} any good?", "".join(sections))


def _verdict(checked: Checked) -> str:
    check, mark = checked.check, checked.mark
    colour = "unreliable" if check.word == "poor" else "reliable"
    why = "".join(
        f"<p>{html.escape(reason.sentence)} {html.escape(reason.details)}</p>"
        for reason in mark.reasons
    )
    advice = show_advice(checked.facts["advice"])
    return (
        f'<div class="verdict {colour}"><strong>{check.word}</strong>{why}{advice}</div>'
        f'<p class="note">{check.images} held-out images were corrupted ('
        f"{html.escape(check.corruption)}), reconstructed, and held against the truth. This speaks"
        " of images like these under corruptions like this one.</p>"
    )


def _coverage(facts: Mapping[str, Any]) -> str:
    levels = ("50%", "90%")
    head = "".join(f"<th>in {level} intervals</th>" for level in levels)
    rows = ""
    for group, words in _GROUPS.items():
        rates = [facts["coverage"][group][level] for level in levels]
        cells = "".join(
            "<td>there are none</td>" if rate is None else f"<td>{rate[0]:.1%} ± {rate[1]:.1%}</td>"
            for rate in rates
        )
        rows += f"<tr><th>{words}</th>{cells}</tr>"
    return (
        "<p>How often does the true value of a pixel lie in its interval? Fewer than stated: the"
        " prior is over-confident. More: it is too cautious. Pixels that are black for sure are"
        " always covered, so pixels that the answer is unsure of (standard deviation above 0.05)"
        f" are counted apart.</p><table><tr><th></th>{head}</tr>{rows}</table>"
    )


def _plots(checked: Checked) -> str:
    images = inline_plot(
        render_svg(_draw_images(per_image(checked.rows))),
        "Hidden pixels in their 90 % intervals, image by image.",
    )
    density = histogram(checked.rows)
    if not density.any():  # There is no pixel that an answer was unsure of.
        return images
    return images + inline_plot(
        render_svg(_draw_ranks(density)),
        "Ranks of true pixels among draws; the line is what a perfect prior would show. A hill in"
        " the middle: too cautious. Horns at the ends: over-confident.",
    )


def _draw_images(shares: Float[np.ndarray, " images"]) -> Any:
    figure, axis = make_plot()
    axis.plot(100 * np.sort(shares), ".", color=MODES[0])
    axis.axhline(90, color=OTHER, linewidth=1)
    axis.set_ylim(min(40, 100 * shares.min() - 5), 102)
    axis.set_xlabel("images, sorted", fontsize=TEXT)
    axis.set_ylabel("per cent", fontsize=TEXT)
    return figure


def _draw_ranks(density: Float[np.ndarray, " bins"]) -> Any:
    figure, axis = make_plot()
    axis.bar((np.arange(BINS) + 0.5) / BINS, density, 0.9 / BINS, color=MODES[0])
    axis.axhline(1, color=OTHER, linewidth=1)
    axis.set_xlabel("rank of the true pixel", fontsize=TEXT)
    axis.set_ylabel("density", fontsize=TEXT)
    return figure


def _numbers(checked: Checked) -> dict[str, str]:
    check, facts = checked.check, checked.facts
    shares = facts["coverage_of_each_image"]
    images = check.images
    return {
        "per image": f"between {min(shares):.0%} and {max(shares):.0%} of the hidden pixels in"
        f" their 90 % intervals, {np.median(shares):.0%} in the middle image",
        "sharpness": f"with the data hidden pixels have {check.sharpness:.0%} of the standard"
        " deviation that they have without data",
        "CRPS": f"{facts['crps']:.4f}, the mean error of hidden pixels' distributions (the smaller,"
        " the better, for the same images)",
        "ranks of whole images": f"p-value {facts['tarp_p_value']:.2g} of TARP (small: images lie"
        " too often in the middle or at the edge of their posteriors)",
        "alarms": f"{facts['unreliable']} of {images} verdicts were unreliable: {check.misfits}"
        f" images did not fit, {facts['not_computed_well']} answers were not computed well (more"
        " budget helps)",
    }
