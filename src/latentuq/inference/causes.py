"""Why a mark of a verdict stands as it does: every known cause, in plain words.

What a cause means, how its numbers read and what to do about it stand beside it.
"""

import enum

_MORE_TIME = "Give the inference more time (budget thorough), or try another seed."
# What is said about a check of the prior on held-out images.
_CHECKED = (
    "checked on {images:.0f} held-out images: {covered:.0%} of the hidden pixels ({hidden:.0%} of"
    " each image) lay in their 90 % intervals, and {covered_unsure:.0%} of those among them that"
    " the answer was unsure of"
)
_TRAIN_BETTER = (
    "Train the prior again. If its test ELBO is far below that of training images, it has learnt"
    " these by heart: take more images, fewer epochs or a smaller network. Otherwise train it for"
    " longer (more epochs; with less than a thousand images --batch 16 too), or with a larger"
    " latent.",
)


class Standing(enum.StrEnum):
    """What a mark says, from good to bad."""

    OK = "ok"
    UNKNOWN = "unknown"
    BAD = "bad"


class Cause(enum.Enum):
    """Why a mark stands as it does.

    Attributes:
        standing: What the cause makes of its mark.
        clause: The cause in plain words, without capital letter and full stop, as a format string.
        details: The cause with its numbers, as a format string; empty if it has none.
        advice: What to do about it, in whole sentences, as format strings.
    """

    CONFIRMED = (
        Standing.OK,
        "independent draws confirm these probabilities",
        "the draws have k-hat {khat:.2f} (limit {limit:.2f}) and are worth {ess:.0f} independent"
        " ones, ln evidence is known to {error:.2f}, and {missed_mass:.1%} of the mass lies in"
        " modes that at most one of {starts:.0f} starts found",
    )
    AGREED = (
        Standing.OK,
        "independent groups of chains agree on these probabilities",
        "each chain made {turns:.1f} independent draws of the slowest coordinate, together they are"
        " worth {ess:.0f}, ln evidence is known to {error:.2f}, and {missed_mass:.1%} of the mass"
        " lies in modes that at most one of {starts:.0f} starts found",
    )
    DENSITY_ZERO = (
        Standing.BAD,
        "the density is zero or not a number wherever it was evaluated",
        "",
        "Check that the log density is a finite number near the starts of the search; for images,"
        " that data and noise have the scale of the prior's images.",
    )
    NO_MODE = (
        Standing.BAD,
        "the search found no most probable point, so there is nothing to rest an answer on",
        "none of {starts:.0f} starts ended in a mode within reach",
        _MORE_TIME,
    )
    PREVIEW_ONLY = (
        Standing.BAD,
        "this is a preview, and its quick approximation does not describe the posterior well"
        " enough, so the probabilities may be far off",
        "the weights of the draws have a heavy tail (k-hat {khat:.2f}, limit {limit:.2f}), and a"
        " preview runs no chains",
        "Solve the problem with the budget default.",
    )
    FEW_DRAWS = (
        Standing.BAD,
        "too few independent draws are left to tell probabilities",
        "the draws are worth only {ess:.0f} independent ones, and {limit:.0f} are needed",
        _MORE_TIME,
    )
    EVIDENCE_UNCERTAIN = (
        Standing.BAD,
        "the total probability of the data is too uncertain, so another run may give other"
        " probabilities",
        "the standard error of ln evidence is {error:.1f}, above the limit of {limit:.1f}",
        _MORE_TIME,
    )
    UNSETTLED = (
        Standing.BAD,
        "the chains were still on their way when the budget ended, so part of the answer may be"
        " missing",
        "over {rounds:.0f} rounds a chain made {turns:.1f} independent draws (at least {least:.1f}"
        " are needed), ln p shifted by {drift:.2f} of its standard deviation (limit {limit:.2f}),"
        " and ln evidence changed by {change:.1f} of its standard errors (limit {most:.1f})",
        _MORE_TIME,
    )
    DRAWS_LOST = (
        Standing.BAD,
        "many draws lead to none of the modes that were found, so the weights of the modes may be"
        " wrong",
        "{lost:.0%} of the posterior draws that were followed ended in no mode (limit"
        " {limit:.0%}), as where a density has kinks; this concerns the weights of the modes, not"
        " the draws",
        _MORE_TIME,
        "If the prior's networks have kinks, as with leaky ReLU, descents stall: train a prior with"
        " smooth ones (latentuq train --set vae.activation=silu).",
    )
    MODES_MISSED = (
        Standing.BAD,
        "some modes were found by only one start of the search, so others may have been missed",
        "{missed_mass:.0%} of the mass lies in modes that at most one of {starts:.0f} starts found"
        " (limit {limit:.0%})",
        _MORE_TIME,
    )
    FITS = (
        Standing.OK,
        "the data look like what the model makes",
        "posterior predictive p-value {p_value}",
    )
    FITS_CLOSELY = (
        Standing.OK,
        "the data fit even better than the model expects, so the uncertainties are rather too large"
        " than too small",
        "posterior predictive p-value {p_value}: noise or model error are assumed larger"
        " than they are here",
    )
    FITS_BY_DESIGN = (
        Standing.OK,
        "the data fit even better than the model expects, because the prior deliberately assumes"
        " more model error than an average image has",
        "posterior predictive p-value {p_value}: without the larger model error real images,"
        " whose errors are not Gaussian, would seem known too exactly",
    )
    MISFIT = (
        Standing.BAD,
        "the data do not look like what the model makes, so no probability under it can be trusted",
        "posterior predictive p-value {p_value}, limit {limit:.2g}",
        "If the corruption was stated as it was (mask, blur, noise), this image is unlike those of"
        " the prior: use a prior that was trained on images like it (latentuq train).",
    )
    UNEXPLAINED = (
        Standing.BAD,
        "the model leaves over much of what the data show, so no probability under it can be"
        " trusted",
        "at least {share:.0%} of the picture's variance remains unexplained, limit {limit:.0%}",
        "If the corruption was stated as it was (mask, blur, noise), this image is unlike those of"
        " the prior: use a prior that was trained on images like it (latentuq train).",
    )
    INVERTED = (
        Standing.BAD,
        "the picture looks like a negative of the prior's images",
        "images of the prior correlate with it by {correlation:.2f} at best, with its negative by"
        " {negative:.2f}",
        "Exchange black and white (latentuq reconstruct --invert; in Python 1 - y).",
    )
    WRONG_SCALE = (
        Standing.BAD,
        "the picture is about {factor:.2g} times as bright as images of the prior that look like"
        " it, so its scale seems to be wrong",
        "the picture is about {factor:.3g} times as bright as images of the prior that look like"
        " it, usual are {low:.2g} to {high:.2g} times; its black lies at about {offset:.2g}",
        "Check the scale of the data: divided by about {factor:.2g}, with black at 0, they look"
        " like the prior's images (latentuq reconstruct --scale and --offset).",
    )
    NOISE_TOO_SMALL = (
        Standing.BAD,
        "the data scatter more than the stated noise allows",
        "most data are {ratio:.1f} times as far from their predictions as they should be",
        "State more noise: a standard deviation of about {level:.2g}, where white is 1 (latentuq"
        " reconstruct --noise {level:.1%}, or --noise auto to estimate it).",
    )
    NOISE_TOO_LARGE = (
        Standing.BAD,
        "the data vary less than the stated noise alone would make them",
        "the variance of the data is {scatter:.2g} times that of the noise, limit {limit:.2g}",
        "State less noise: its standard deviation is below {level:.2g}, where white is 1 (latentuq"
        " reconstruct --noise {level:.1%}); or check whether data and noise have the same scale.",
    )
    WILD_DATA = (
        Standing.BAD,
        "single data are far from anything that the model makes: {places}",
        "single data, {count:.0f} in number, are up to {excess:.1f} times as far from their"
        " predictions, or from all their neighbours, as allowed: {places}",
        "If these are defects, as hot pixels are, mark them as missing (a mask, or NaN).",
    )
    BLANK = (
        Standing.BAD,
        "the data show less of a picture than any image of the prior would",
        "what the data show beyond the noise has {brightest:.2g} times the variance of the faintest"
        " of many images of the prior, limit {limit:.2g}",
        "Check that the file holds the picture, and the scale of data and noise (latentuq"
        " reconstruct --scale).",
    )
    NOTHING_LEARNED = (
        Standing.BAD,
        "the data told next to nothing about the image, so the answer is hardly more than what the"
        " prior knew before",
        "the data tell {information:.2g} nats and leave {variance_left:.0%} of the prior's"
        " variance",
        "Check the noise: if it is as large as the picture, everything is taken for noise (latentuq"
        " reconstruct --noise, --scale).",
        "If it is right, only more or better data help.",
    )
    NOT_COMPARED = (Standing.UNKNOWN, "there are no data that the model was compared with")
    NOT_CHECKED = (
        Standing.UNKNOWN,
        "the prior has not been checked on held-out images, so nothing is known about whether its"
        " answers are right",
    )
    PRIOR_HOLDS = (
        Standing.OK,
        "on held-out images its intervals held the truth about as often as they should",
        _CHECKED,
    )
    PRIOR_NARROW = (
        Standing.OK,
        "on held-out images its intervals were somewhat too narrow, so take them as a little wider",
        _CHECKED,
        *_TRAIN_BETTER,
    )
    PRIOR_OVERCONFIDENT = (
        Standing.BAD,
        "on held-out images its intervals were far too narrow: it is over-confident about what the"
        " data do not show",
        _CHECKED,
        *_TRAIN_BETTER,
    )
    PRIOR_WIDE = (
        Standing.OK,
        "on held-out images most of its intervals were wider than they need to be",
        "{half_covered:.0%} of the hidden pixels that the answer was unsure of, or of all of them"
        " if it was unsure of none, lay in their 50 % intervals",
        *_TRAIN_BETTER,
    )
    PRIOR_VAGUE = (
        Standing.OK,
        "on held-out images the data told it next to nothing about the pixels that they did not"
        " show",
        "with the data the standard deviation of hidden pixels was {sharpness:.0%} of what it is"
        " without them",
        "Train the prior for longer or with a larger latent, if its samples look unlike real"
        " images; if they look right, hidden pixels of such images cannot be known.",
    )
    PRIOR_ESTRANGED = (
        Standing.BAD,
        "it called many held-out images of its own kind unlike anything that it makes",
        "{misfits:.0f} of {images:.0f} held-out images did not fit",
        "Check that the held-out images are of the kind, the scale and the orientation of the"
        " training images.",
        *_TRAIN_BETTER,
    )

    def __init__(self, standing: Standing, clause: str, details: str = "", *advice: str):
        self.standing = standing
        self.clause = clause
        self.details = details
        self.advice = advice

    def __repr__(self) -> str:
        return str(self)
