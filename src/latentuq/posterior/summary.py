"""A posterior in words and numbers."""

from jaxtyping import Array, Float

from latentuq.inference.result import Inference

# The most rows of the table of modes, and the most weights in one line.
_MOST_ROWS = 10
_MOST_WEIGHTS = 4

DOWNWEIGHTED = "of down-weighted data, not to be compared between priors or noise levels"
"""What an evidence is if data count less than once."""


def describe(inference: Inference) -> str:
    """Writes one line with the modes, the evidence and the word of the verdict."""
    modes, dim = inference.modes.shape
    shown = ", ".join(f"{weight:.3g}" for weight in inference.weights[:_MOST_WEIGHTS])
    more = ", ..." if modes > _MOST_WEIGHTS else ""
    return (
        f"Posterior(u in R^{dim}, {modes} mode{'s' * (modes != 1)} of weight {shown}{more};"
        f" {_evidence(inference)}; {inference.verdict.word})"
    )


def tabulate(
    inference: Inference, chi_squared: Float[Array, " modes"] | None, downweighted: bool
) -> str:
    """Writes a table of the modes, then evidence, certificate, and the verdict mark by mark."""
    found, weights = inference.diagnostics, inference.weights
    lines = [f"{'mode':>4}  {'weight':>16}  {'-ln p(u|y)':>10}  {'chi-squared':>11}"]
    for mode in range(min(len(weights), _MOST_ROWS)):
        weight = f"{weights[mode]:.4f} +- {inference.weight_errors[mode]:.4f}"
        depth = float(inference.draws.log_evidence - inference.log_densities[mode])
        fit = "-" if chi_squared is None else f"{chi_squared[mode]:.1f}"
        deepest = "  deepest" if mode == inference.map_index else ""
        lines.append(f"{mode:>4}  {weight:>16}  {depth:>10.2f}  {fit:>11}{deepest}")
    if len(weights) > _MOST_ROWS:
        rest = float(weights[_MOST_ROWS:].sum())
        lines.append(f"and {len(weights) - _MOST_ROWS} more of weight {rest:.4f} together")
    lines += [
        _evidence(inference) + f" ({DOWNWEIGHTED})" * downweighted,
        f"effective draws {found.ess:.0f} of {found.draws}, {found.quality}",
        f"missed mass {found.missed_mass:.2g}, chance that one more start finds a new basin"
        f" {found.new_basin_chance:.2g}",
    ]
    if found.reduced_chi_squared is not None:
        lines.append(f"chi-squared per datum {found.reduced_chi_squared:.2f} at the deepest mode")
    verdict = inference.verdict
    lines += [line for line in (found.learned, found.course, str(verdict)) if line]
    for name, mark in verdict.marks.items():
        lines.append(f"{name}: {verdict.statement(name)}")
        lines += [f"  {mark.details}"] * (mark.details != mark.sentence)
    return "\n".join(lines)


def _evidence(inference: Inference) -> str:
    draws = inference.draws
    return f"ln evidence {float(draws.log_evidence):.3f} +- {float(draws.log_evidence_error):.3f}"
