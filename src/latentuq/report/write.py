"""The files of a report."""

import dataclasses
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentuq.core.errors import UserError
from latentuq.data.observation import Observation
from latentuq.data.scaling import UNIT
from latentuq.inference.causes import Standing
from latentuq.posterior.posterior import Posterior
from latentuq.problem.units import keeps_units
from latentuq.report.content import Content
from latentuq.report.figures import FIGURES, save_figure, true_minus
from latentuq.report.html import make_page

if TYPE_CHECKING:
    from latentuq.posterior.noise_level import NoiseLevel

FILES = ("report.html", "summary.json", "posterior.nc", "mean.fits", "std.fits")
"""What a report may consist of, besides its figures."""
# Those of the diagnostics that `summary.json` has under the same names.
_DIAGNOSTICS = (
    *("khat", "khat_limit", "ess", "draws", "rounds", "turns", "drift"),
    *("missed_mass", "new_basin_chance"),
    *("reduced_chi_squared", "predictive_p_value", "information", "variance_left", "learned"),
    "forward_equivalents",
)


@dataclasses.dataclass(frozen=True)
class Background:
    """What a report says besides what its posterior does.

    Attributes:
        title: The title of the page.
        observation: Where the data came from; with a FITS header, maps are written as FITS too.
        assumed: What was taken for granted about units, in a line.
        notes: Sentences for the page, such as what was noticed about the data.
        noise_level: How the level of the noise was estimated, if it was.
        samples: The number of equally weighted draws of u and x in `posterior.nc`.
    """

    title: str
    observation: Observation | None = None
    assumed: str = ""
    notes: Sequence[str] = ()
    noise_level: "NoiseLevel | None" = None
    samples: int = 500


def stamp(post: Posterior, command: str, seed: int) -> Posterior:
    """The posterior with the command and the seed that made it.

    It is another object and computes its images anew, so a posterior is stamped before any are.
    """
    made = {"command": command, "seed": str(seed)}
    return dataclasses.replace(post, provenance={**post.provenance, **made})


def write_report(
    folder: Path, post: Posterior, content: Content, background: Background
) -> dict[str, Any]:
    """Writes the page, the figures and the posterior into a folder.

    Args:
        folder: The folder, which exists.
        post: A posterior with its problem.
        content: What is shown of it, see `collect`.
        background: What else is said.

    Returns:
        The numbers for `write_summary`.
    """
    facts = summarise(post, content)
    facts["units"], facts["notes"] = background.assumed, [*background.notes]
    notes = [note for note in (background.assumed, *background.notes) if note]
    provenance = _provenance(post)
    if (level := background.noise_level) is not None:
        provenance["estimated noise"] = str(level)
        interval = {"low": level.low, "high": level.high, "bound": level.is_bound}
        facts["noise"] = {"std": level.std, **interval}
    figures = folder / "figures"
    figures.mkdir()
    drawn = {
        name: save_figure(draw(content), figures / f"{name}.png") for name, draw in FIGURES.items()
    }
    post.save(folder / "posterior.nc", samples=background.samples)
    page = make_page(background.title, post, content, drawn, provenance, notes)
    (folder / "report.html").write_text(page, encoding="utf-8")
    if background.observation is not None and background.observation.header is not None:
        _write_fits(folder, post, background.observation)
    return facts


def write_summary(folder: Path, facts: dict[str, Any]) -> None:
    """Writes `summary.json`."""
    (folder / "summary.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def summarise(post: Posterior, content: Content) -> dict[str, Any]:
    """The numbers of a report."""
    bad = [each.cause for each in post.verdict.reasons if each.cause.standing is Standing.BAD]
    facts: dict[str, Any] = {
        "status": post.verdict.word,
        "reasons": [cause.name for cause in bad],
        "verdict": post.verdict.to_json(),
        "log_evidence": post.log_evidence,
        "log_evidence_error": post.log_evidence_error,
        "data_downweighted": post.problem is not None and post.problem.downweighted,
        "modes": [
            {
                "weight": card.weight,
                "weight_error": card.weight_error,
                "negative_log_posterior": card.depth,
                "chi_squared_per_datum": card.chi_squared,
                "deepest": card.deepest,
            }
            for card in content.cards
        ],
        "weight_of_other_modes": content.rest,
        **{name: getattr(post.diagnostics, name) for name in _DIAGNOSTICS},
        **post.provenance,
    }
    if content.comparison is not None:
        facts |= content.comparison._asdict()
    # JSON knows no infinities.
    return json.loads(json.dumps(facts, default=float), parse_constant=lambda _: None)


def _provenance(post: Posterior) -> dict[str, str]:
    rows = dict(post.provenance)
    if post.problem is not None:
        rows["problem"] = true_minus(post.problem.explain())
    return {name.replace("_", " "): value for name, value in rows.items() if value}


def _write_fits(folder: Path, post: Posterior, observation: Observation) -> None:
    """Maps with the header of the input; in its units, unless the operator changes them."""
    try:
        from astropy.io import fits
    except ImportError as error:
        raise UserError("Writing FITS needs astropy: pip install latentuq[fits].") from error
    assert post.problem is not None
    data_shape = post.problem.y.shape
    resized = observation.raw.shape != data_shape
    header = _adapted(observation.header, np.shape(post.mean), data_shape, resized)
    scaling = observation.scaling
    if not keeps_units(post.problem.operator):
        scaling = UNIT
        header.remove("BUNIT", ignore_missing=True)
        header.add_comment("On the prior's scale of [0, 1]: the operator changes units.")
    for name, values in (
        ("mean", scaling.from_unit(np.asarray(post.mean))),
        ("std", scaling.step * np.asarray(post.std)),
    ):
        fits.writeto(
            folder / f"{name}.fits",
            values.astype(np.float32),
            header,
            output_verify="silentfix+ignore",
        )


def _adapted(
    header: Any, shape: tuple[int, ...], data_shape: tuple[int, ...], resized: bool = False
) -> Any:
    """The header of the data for a map, which may have more pixels on the same sky.

    Coordinates of data that were resized are left out: some of the sky may have been cut off.
    """
    from astropy.wcs import WCS

    header = header.copy()
    for word in ("BSCALE", "BZERO", "BLANK", "CHECKSUM", "DATASUM"):
        header.remove(word, ignore_missing=True)
    if shape == data_shape and header.get("NAXIS", 2) == 2 and not resized:
        return header
    ratios = np.array(shape[::-1]) / np.array(data_shape[::-1])
    with warnings.catch_warnings(action="ignore"):
        whole = WCS(header)
        wcs, words = whole.sub(2), whole.to_header()
    for word in words:
        header.remove(word, ignore_missing=True)
    for word in [*header["CD?_?"], *header["CTYPE*"], *header["CR????*"], *header["CDELT*"]]:
        header.remove(word, ignore_missing=True)
    if resized:
        header.add_comment("The image was resized: the coordinates of the input are left out.")
        return header
    # Pixel centres are whole numbers.
    wcs.wcs.crpix = (wcs.wcs.crpix - 0.5) * ratios + 0.5
    wcs.wcs.pc = wcs.wcs.get_pc() / ratios
    header.update(wcs.to_header())
    return header
