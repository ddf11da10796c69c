"""What a verdict means, and what to do about it, in plain words."""

from latentuq.inference.verdict import MOST_LOST
from latentuq.posterior import Posterior
from latentuq.posterior.misfit import WORST_FIT, show_p_value

_MISFIT = "The data do not fit the model. Do not rely on the probabilities of this answer."
_MEANINGS = {
    "reliable": "Gaussians at the modes describe this posterior; independent draws confirm it.",
    "refined": "Gaussians at the modes did not suffice; the answer rests on a proposal that was"
    " adapted until independent draws confirmed it.",
    "unreliable": "Independent draws do not confirm this answer. Do not rely on its probabilities.",
}


def first_word(post: Posterior) -> str:
    """`reliable`, `refined` or `unreliable`."""
    return post.verdict.partition(":")[0]


def explain_verdict(post: Posterior) -> str:
    """What the verdict's first word means."""
    return _MISFIT if _is_misfit(post) else _MEANINGS[first_word(post)]


def explain_fit(post: Posterior) -> str:
    """The posterior predictive p-value in words; empty without data."""
    p_value = post.diagnostics.predictive_p_value
    if p_value is None:
        return ""
    shown = f"Posterior predictive p-value {show_p_value(p_value)}."
    if p_value < WORST_FIT:
        return f"{shown} The model does not make such data: no answer under it is reliable."
    if p_value > 0.99:
        problem = post.problem
        inflated = problem is not None and problem.prior.model_error.most_data is not None
        why = (
            "On purpose this prior assumes more model error than an image has on average: real"
            " images, whose errors are not Gaussian, would seem known too exactly without."
            if inflated
            else "Noise or model error are assumed larger than they are here, and uncertainties"
            " rather too large than too small."
        )
        return f"{shown} The data fit better than the model's own. {why}"
    return f"{shown} The model makes such data."


def give_advice(post: Posterior) -> list[str]:
    """What to try if the answer is unreliable; nothing otherwise."""
    if first_word(post) != "unreliable":
        return []
    advice = []
    if _is_misfit(post):
        advice += [
            "State the corruption as it was: mask, blur, and the level of the noise"
            " (--noise auto estimates it).",
            "Check that the image has the scale and the orientation of the prior's images.",
            "Use a prior that was trained on images like this one (latentuq train).",
        ]
    else:
        advice.append("Give the inference more time (--budget), or another --seed.")
    if post.inference.probes.lost > MOST_LOST:
        advice.append(
            "If the prior's networks have kinks, as with leaky ReLU, descents stall: train one with"
            " smooth ones (latentuq train --activation silu)."
        )
    return [*advice, "Until then take its probabilities as a sketch."]


def _is_misfit(post: Posterior) -> bool:
    """Whether the verdict is what it is because of the data."""
    p_value = post.diagnostics.predictive_p_value
    return p_value is not None and p_value < WORST_FIT
