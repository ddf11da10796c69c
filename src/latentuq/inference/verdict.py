"""How far an answer can be trusted: three marks, each with its reasons.

A reason is a value: one of the known causes and the numbers that were measured.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from latentuq.inference.causes import Cause, Standing

QUESTIONS = {
    "computed": "Is the answer computed well?",
    "fit": "Do the data fit the model?",
    "prior": "Has the prior been checked on held-out images?",
}
"""What each mark answers."""

ANSWERS = {Standing.OK: "Yes", Standing.BAD: "No", Standing.UNKNOWN: "Not known"}
"""What the standing of a mark answers."""

# What a reliable verdict says about the prior; nothing in it says that the picture is right.
_PRIOR = {
    Standing.OK: "and the prior did well on held-out images",
    Standing.UNKNOWN: "and the prior has not been checked",
    Standing.BAD: "but the prior did badly on held-out images",
}
_UNTIL_THEN = "Until then take the probabilities as a sketch."


@dataclasses.dataclass(frozen=True)
class Reason:
    """One reason for a mark.

    Attributes:
        cause: Which of the known causes it is.
        numbers: What was measured and its limit, by name.
    """

    cause: Cause
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def clause(self) -> str:
        """The reason in plain words, to be part of a sentence."""
        return self._filled(self.cause.clause)

    @property
    def sentence(self) -> str:
        """The reason in plain words."""
        return _as_sentence(self.clause)

    @property
    def details(self) -> str:
        """The reason with its numbers, or in plain words if it has none."""
        return _as_sentence(self._filled(self.cause.details or self.cause.clause))

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it, in whole sentences."""
        return tuple(map(self._filled, self.cause.advice))

    def _filled(self, text: str) -> str:
        shown: dict[str, Any] = dict(self.numbers)
        if "p_value" in shown:
            shown["p_value"] = show_p_value(shown["p_value"])
        return text.format(**shown, places=_show_places(self.numbers))


@dataclasses.dataclass(frozen=True)
class Mark:
    """The answer to one question about a posterior.

    Attributes:
        reasons: At least one; the gravest comes first.
    """

    reasons: tuple[Reason, ...]

    @property
    def standing(self) -> Standing:
        """The worst standing of any reason."""
        return max((reason.cause.standing for reason in self.reasons), key=[*Standing].index)

    @property
    def sentence(self) -> str:
        """All reasons in plain words."""
        return " ".join(reason.sentence for reason in self.reasons)

    @property
    def details(self) -> str:
        """All reasons with their numbers."""
        return " ".join(reason.details for reason in self.reasons)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How far a posterior can be trusted; as text one word and a plain sentence why.

    Attributes:
        computed: Is this the posterior?
        fit: Could the model have made these data?
        prior: Has the prior been checked on held-out images, and did it do well?
    """

    computed: Mark
    fit: Mark = Mark((Reason(Cause.NOT_COMPARED),))
    prior: Mark = Mark((Reason(Cause.NOT_CHECKED),))

    @property
    def marks(self) -> dict[str, Mark]:
        """The three marks by name."""
        return {"computed": self.computed, "fit": self.fit, "prior": self.prior}

    @property
    def reliable(self) -> bool:
        """Whether the posterior was computed well, and the data do not contradict the model."""
        return self.computed.standing is Standing.OK and self.fit.standing is not Standing.BAD

    @property
    def word(self) -> str:
        """Either "reliable" or "unreliable"."""
        return "reliable" if self.reliable else "unreliable"

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of all three marks."""
        return tuple(reason for mark in self.marks.values() for reason in mark.reasons)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about the reasons that are bad, in whole sentences."""
        # What is wrong with the data comes first: no computation makes up for it.
        reasons = (*self.fit.reasons, *self.computed.reasons, *self.prior.reasons)
        bad = [reason for reason in reasons if reason.cause.standing is Standing.BAD]
        advice = [sentence for reason in bad for sentence in reason.advice]
        return tuple(dict.fromkeys(advice if self.reliable else [*advice, _UNTIL_THEN]))

    @property
    def details(self) -> str:
        """One line for each mark, with the numbers that it rests on."""
        return "\n".join(
            f"{name} {mark.standing}: {mark.details}" for name, mark in self.marks.items()
        )

    def statement(self, name: str) -> str:
        """One of the marks in plain words: its question, the answer, and why."""
        mark = self.marks[name]
        return f"{QUESTIONS[name]} {ANSWERS[mark.standing]}. {mark.sentence}"

    def __str__(self) -> str:
        if self.reliable and self.fit.standing is Standing.UNKNOWN:
            return f"{self.word}: {self.computed.reasons[0].clause}."
        if self.reliable:
            prior = _PRIOR[self.prior.standing]
            return f"{self.word}: the computation is confirmed, the data fit the model, {prior}."
        said = [self.fit] if self.fit.standing is Standing.BAD else []
        said += [self.computed] if self.computed.standing is not Standing.OK else []
        return f"{self.word}: {'; besides, '.join(mark.reasons[0].clause for mark in said)}."

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain values, for JSON, which knows no infinities: they become text."""
        marks = {
            name: {
                "standing": str(mark.standing),
                "reasons": [
                    {
                        "cause": reason.cause.name,
                        "sentence": reason.sentence,
                        "numbers": {
                            each: float(value) if math.isfinite(value) else str(value)
                            for each, value in reason.numbers.items()
                        },
                    }
                    for reason in mark.reasons
                ],
            }
            for name, mark in self.marks.items()
        }
        return {"reliable": self.reliable, "text": str(self), "marks": marks}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Verdict":
        """The verdict that `to_json` was called on; only causes and numbers are read.

        Raises:
            KeyError, TypeError or ValueError: The values are not those of a verdict.
        """

        def read(reason: Mapping[str, Any]) -> Reason:
            numbers = {name: float(value) for name, value in reason["numbers"].items()}
            return Reason(Cause[reason["cause"]], numbers)

        marks = values["marks"]
        verdict = cls(
            **{name: Mark(tuple(map(read, mark["reasons"]))) for name, mark in marks.items()}
        )
        # A mark without reasons, or a reason without its numbers, is refused here and not later.
        _ = verdict.details
        return verdict


def show_p_value(p_value: float) -> str:
    """A p-value as far as draws can tell it: a bound near 0 and 1."""
    if p_value < 0.001:
        return "< 0.001"
    return "> 0.99" if p_value > 0.99 else f"{p_value:.2g}"


def _show_places(numbers: Mapping[str, float]) -> str:
    """The places of single data, which are named place_0_0, place_0_1, place_1_0 and so on."""
    places: dict[str, list[str]] = {}
    for name, value in numbers.items():
        if name.startswith("place_"):
            places.setdefault(name.split("_")[1], []).append(f"{value:.0f}")
    shown = [
        "row {}, column {}".format(*place) if len(place) == 2 else f"datum {', '.join(place)}"
        for place in places.values()
    ]
    more = numbers.get("count", 0) - len(shown)
    return "; ".join(shown) + (f"; and {more:.0f} more" if more > 0 else "")


def _as_sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
