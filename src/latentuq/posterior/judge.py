"""The mark `fit`: could the model have made these data, did they teach anything, and if not, why?

All limits are here. They were chosen on real digits under the embedded prior, on other images than
those of the study of verdicts.
"""

import numpy as np
from scipy.stats import norm

from latentuq.inference.causes import Cause
from latentuq.inference.verdict import Mark, Reason
from latentuq.posterior.learned import Learned
from latentuq.posterior.misfit import Fit

WORST_FIT = 0.001
"""The p-value below which a verdict says that the data do not fit the model."""
# The p-value above which the data fit better than what the model makes.
_CLOSEST_FIT = 0.99
# The largest share of the picture's variance that may stay unexplained: so much, and so many times
# the share that the generator's error has in images of the prior.
_UNEXPLAINED, _TIMES_USUAL = 0.05, 2.5
# How many times its usual spread the logarithm of the picture's brightness may be from that of the
# prior's images; and how many times if it is also so many times less explained than usual.
_BRIGHTNESS, _DOUBTFUL_BRIGHTNESS, _DOUBTFUL = 3.2, 2.3, 2.0
# The part of the usual correlation below which a picture is not like the prior's images at all.
_UNLIKE = 0.8
# How much better the negative of the picture must look than the picture.
_INVERTED = 0.2
# The least variance of the data over that of the noise, and the least one of data that show no
# picture. Noise that was clipped at black keeps more than the former.
_SCATTER, _BLANK_SCATTER = 0.25, 0.8
# Fewer data than this have no variance to speak of.
_FEWEST = 10
# Data that vary less than this part of the noise's variance are one and the same number.
_CONSTANT = 1e-6
# A picture that has a smaller part of the variance of the faintest of the prior's images is none.
_FAINT = 0.5
# Single data: the chance that any of them is so far off, or stands out so far, by noise alone; how
# many times as far off it may be, because real images have strokes that the generator lacks; and
# how many times as far as in images of the prior it may stand out. More than the last share of all
# data are not single.
_CHANCE, _FARTHER, _SHARPER, _SINGLE = 0.001, 2.5, 2.5, 0.01
_MOST_PLACES = 3
# How much wider than expected most gaps are if the noise was stated too small, and the correlation
# of neighbouring gaps above which it is no noise.
_WIDER, _WHITE = 1.3, 0.4
# Less information, and more of the prior's variance left, is next to nothing.
_INFORMATION, _VARIANCE_LEFT = 1.0, 0.9


def judge_fit(
    fit: Fit | None, learned: Learned | None, shape: tuple[int, ...], inflated: bool
) -> Mark:
    """Makes the mark `fit`.

    Args:
        fit: How the data compare with the model; None if there is nothing to compare.
        learned: How much the data told.
        shape: The shape of the data.
        inflated: Whether the prior assumes more model error than an image has on average.
    """
    if fit is None:
        return Mark((Reason(Cause.NOT_COMPARED),))
    nothing = [*_judge_noise(fit), *_judge_learned(learned)]
    # Data of another scale, noise and all, tell nothing either.
    reasons = [*_judge_brightness(fit), *nothing] if nothing else _judge_picture(fit, shape)
    if reasons:
        return Mark(tuple(reasons))
    cause = Cause.FITS
    if fit.p_value > _CLOSEST_FIT:
        cause = Cause.FITS_BY_DESIGN if inflated else Cause.FITS_CLOSELY
    return Mark((Reason(cause, {"p_value": fit.p_value}),))


def _judge_noise(fit: Fit, limit: float = _SCATTER) -> list[Reason]:
    if fit.scatter >= limit or len(fit.surprises) < _FEWEST:
        return []
    if fit.scatter < _CONSTANT:
        return [Reason(Cause.BLANK, {"brightest": fit.brightest, "limit": _FAINT})]
    level = fit.noise_level * np.sqrt(fit.scatter)
    numbers = {"scatter": fit.scatter, "limit": limit, "level": float(level)}
    return [Reason(Cause.NOISE_TOO_LARGE, numbers)]


def _judge_blank(fit: Fit) -> list[Reason]:
    """Why there is no picture: it may be hidden by noise that was stated too large."""
    blank = Reason(Cause.BLANK, {"brightest": fit.brightest, "limit": _FAINT})
    return _judge_noise(fit, _BLANK_SCATTER) or [blank]


def _judge_learned(learned: Learned | None) -> list[Reason]:
    if learned is None:
        return []
    if learned.information >= _INFORMATION or learned.variance_left <= _VARIANCE_LEFT:
        return []
    return [Reason(Cause.NOTHING_LEARNED, learned._asdict())]


def _judge_picture(fit: Fit, shape: tuple[int, ...]) -> list[Reason]:
    """Why the data do not fit, the most particular reason that explains it; none if they do."""
    limit = _UNEXPLAINED + _TIMES_USUAL * fit.usual_unexplained
    misfit = Reason(Cause.MISFIT, {"p_value": fit.p_value, "limit": WORST_FIT})
    unexplained = Reason(Cause.UNEXPLAINED, {"share": fit.unexplained, "limit": limit})
    general = [misfit] if fit.p_value < WORST_FIT else []
    general += [unexplained] if fit.unexplained > limit else []
    if fit.p_value < WORST_FIT and fit.noise_ratio > _WIDER and fit.neighbours < _WHITE:
        numbers = {"ratio": fit.noise_ratio, "level": fit.noise_level}
        return [Reason(Cause.NOISE_TOO_SMALL, numbers)]
    if particular := _judge_brightness(fit):
        return particular
    blank = _judge_blank(fit) if fit.brightest < _FAINT else []
    return [*_judge_single(fit, shape), *blank] or general


def _judge_brightness(fit: Fit) -> list[Reason]:
    found, usual = fit.likeness, fit.usual
    if found is None:
        return []
    if -found.negative > found.correlation + _INVERTED:
        numbers = {"correlation": found.correlation, "negative": -found.negative}
        return [Reason(Cause.INVERTED, numbers)]
    doubtful = fit.unexplained > _DOUBTFUL * fit.usual_unexplained
    limit = usual.factor_spread * (_DOUBTFUL_BRIGHTNESS if doubtful else _BRIGHTNESS)
    # What does not even look like the prior's images has no brightness to compare.
    if abs(np.log(found.factor)) <= limit or found.correlation < _UNLIKE * usual.correlation:
        return []
    low, high = (float(np.exp(sign * limit)) for sign in (-1, 1))
    numbers = {"factor": found.factor, "offset": found.offset, "low": low, "high": high}
    return [Reason(Cause.WRONG_SCALE, numbers)]


def _judge_single(fit: Fit, shape: tuple[int, ...]) -> list[Reason]:
    data, found = len(fit.surprises), fit.prominences
    farthest = float(norm.isf(_CHANCE / (2 * data)))
    # Standard deviations from the prediction, or from the neighbours, over what is allowed.
    off = fit.surprises / (_FARTHER * farthest)
    out = found.data / np.maximum(np.hypot(farthest * found.noise, _SHARPER * found.images), 1e-30)
    excess = np.maximum(off, out)
    wild = np.flatnonzero(excess > 1)
    if not 0 < len(wild) <= max(_SINGLE * data, 1):
        return []
    wild = wild[np.argsort(-excess[wild], kind="stable")]
    numbers = {"count": len(wild), "excess": float(excess[wild[0]])}
    for place, index in enumerate(fit.places[wild[:_MOST_PLACES]]):
        axes = np.unravel_index(index, shape)
        numbers |= {f"place_{place}_{axis}": float(each) for axis, each in enumerate(axes)}
    return [Reason(Cause.WILD_DATA, numbers)]
