"""What held-out images have shown about a prior; it is kept in the model file."""

import dataclasses

from latentuq.core.options import check, choice, number

WORDS = ("good", "usable", "poor")
"""What a check may find, from best to worst."""


@dataclasses.dataclass(frozen=True)
class PriorCheck:
    """Held-out images were corrupted and reconstructed: how often was the truth where it should be?

    Hidden pixels are those that the data do not show as such: masked ones, or all pixels if none is
    masked, as under a blur. The prior is unsure of a pixel whose posterior standard deviation is
    above 0.05; many others are black for sure.
    """

    word: str = choice("poor", WORDS, "what the numbers say together")
    images: int = number(1, 1, 10**9, "number of held-out images")
    corruption: str = dataclasses.field(default="", metadata={"help": "what was done to them"})
    hidden: float = number(1.0, 0.0, 1.0, "share of the pixels that are hidden")
    covered: float = number(0.0, 0.0, 1.0, "share of hidden pixels in their 90 % intervals")
    covered_unsure: float = number(0.0, 0.0, 1.0, "share of those that it is unsure of")
    half_covered: float = number(0.0, 0.0, 1.0, "share of these in their 50 % intervals")
    lowest: float = number(0.0, 0.0, 1.0, "share of hidden pixels of the worst image")
    sharpness: float = number(1.0, 0.0, 1e9, "hidden pixels' spread, divided by that without data")
    misfits: int = number(0, 0, 10**9, "images that the verdict called unlike the prior's own")

    def __post_init__(self) -> None:
        check(self)
