"""What is known about a prior, as the mark `prior` of a verdict."""

import dataclasses

from latentuq.inference.causes import Cause, Standing
from latentuq.inference.verdict import Mark, Reason
from latentuq.prior.check import PriorCheck

# Shares of hidden pixels in 90 % intervals: below the first they are too narrow, below the second
# far too narrow.
_NARROW = 0.86
_OVERCONFIDENT = 0.75
# Share of hidden pixels in 50 % intervals above which these are too wide.
_WIDE = 0.75
# From this share of the spread without data on, the data told next to nothing.
_VAGUE = 0.9
# From this share of images that do not fit on, the prior does not know its own kind.
_ESTRANGED = 0.2


def judge_prior(check: PriorCheck | None) -> Mark:
    """Makes the mark `prior`: have intervals of this prior held the truth of held-out images?

    Pixels that are black for sure make the share of all hidden ones look good; pixels that are
    wrong, but seem certain, are left out of those that the answer is unsure of. The smaller of the
    two shares decides.
    """
    if check is None:
        return Mark((Reason(Cause.NOT_CHECKED),))
    covered = min(check.covered, check.covered_unsure)
    causes = []
    if check.misfits >= _ESTRANGED * check.images:
        causes.append(Cause.PRIOR_ESTRANGED)
    if covered < _NARROW:
        narrow = covered >= _OVERCONFIDENT
        causes.append(Cause.PRIOR_NARROW if narrow else Cause.PRIOR_OVERCONFIDENT)
    if check.half_covered > _WIDE:
        causes.append(Cause.PRIOR_WIDE)
    if check.sharpness > _VAGUE:
        causes.append(Cause.PRIOR_VAGUE)
    numbers = {
        name: float(value)
        for name, value in dataclasses.asdict(check).items()
        if not isinstance(value, str)
    }
    causes.sort(key=lambda cause: cause.standing is not Standing.BAD)
    return Mark(tuple(Reason(cause, numbers) for cause in causes or [Cause.PRIOR_HOLDS]))


def word_of(mark: Mark) -> str:
    """One of `WORDS` for a mark of `judge_prior`."""
    if mark.standing is Standing.BAD:
        return "poor"
    return "good" if mark.reasons[0].cause is Cause.PRIOR_HOLDS else "usable"
