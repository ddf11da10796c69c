"""What the paper claims about EL2O and about stochastic variational inference.

Each check returns its answer in a few words (`short`) and what the page says in support of it.
"""

from typing import Any

import numpy as np

from latentuq.core.cells import Cells
from studies.pages import rows
from studies.reproduce import gaussians
from studies.reproduce.gaussians import EL2O, HESSIANS, LAPLACE, TITLES, distance, read_gaussian
from studies.reproduce.plan import FAMILIES, MODELS, NOISY, OURS, RATES, REPEATS, by_model
from studies.reproduce.recipe import cost_of_ten
from studies.reproduce.variational import DIAGONALS
from studies.reproduce.words import listed, minus, under

# In words, because a bar would end the cell of a table.
_REVERSE, _FORWARD = "KL(q given p)", "KL(p given q)"
# ELBOs, in nats, this close are the same.
SAME = 0.1
# The number of standard deviations by which a mean is away from a point.
_AWAY = 0.2
# A run this many nats below a converged fit has not converged.
_BELOW = 10.0


def check_agreement(cells: Cells) -> dict[str, Any]:
    """Does EL2O agree with full-rank SVI, both on draws of their own fit?"""
    gaps, same, bounds, few = [], [], [], []
    for model in MODELS:
        svi, limit = cells[f"svi {model} full-rank"], cells[f"limit {model}"]
        gaps.append(abs(minus(limit["elbo"], svi["elbo"])))
        noise = 3 * float(np.hypot(limit["elbo_error"], svi["elbo_error"]))
        same.append(gaps[-1] < max(SAME, noise))
        fits = [limit, *(cells[f"gaussians {model}"]["fits"][name] for name in (EL2O, HESSIANS))]
        q = read_gaussian(svi)
        kl = [gaussians.gaussian_kl(read_gaussian(fit), q) for fit in fits]
        theirs, ours = map("{elbo:.2f} ± {elbo_error:.2f}".format_map, (svi, limit))
        bounds.append(
            f"Under `{model}` the ELBO is {ours} with EL2O and {theirs} with SVI, and"
            f" KL(EL2O | SVI) is {kl[0]:.2f} nats"
        )
        few.append(f"{kl[1]:.2f} from gradients and {kl[2]:.2f} from averaged Hessians (`{model}`)")
    short = f"Yes, within {max(gaps):.2f} nats of the ELBO."
    if not any(same):
        short = f"No: the ELBOs differ by up to {max(gaps):.2f} nats."
    elif not all(same):
        gap = gaps[same.index(True)]
        short = f"Under {under(same)[0]} only, within {gap:.2f} nats of the ELBO."
    return {
        "short": short,
        "samples": cells[f"limit {OURS}"]["samples"],
        "iterations": cells[f"limit {OURS}"]["iterations"],
        "bounds": ". ".join(bounds),
        "few": listed(few),
    }


def check_noise(cells: Cells) -> dict[str, Any]:
    """Does a Gaussian target leave EL2O nothing to average?"""
    cell = cells["noise"]
    quiet = cell["el2o"] < 1e-3 * cell["plain"] and cell["el2o_kl"] < 1e-3
    lesson = "here the path gradient does not help."
    if cell["path_kl"] < 0.1 * cell["svi_kl"]:
        lesson = "the noise is a property of the gradient, not of minimising KL."
    return cell | {"short": "Yes." if quiet else "No.", "lesson": lesson}


def check_accuracy(cells: Cells) -> dict[str, Any]:
    """How far is each Gaussian fit from the certified posterior, by KL in both directions?"""
    found, ratios = [], []
    better: dict[str, tuple[list[bool], list[bool]]] = {family: ([], []) for family in FAMILIES}
    for model in MODELS:
        cell = cells[f"posterior {model} {NOISY}"]
        mean, std, draws = (np.array(cell[name]) for name in ("mean", "std", "draws"))
        search = cost_of_ten(cells[f"recipe {model} {NOISY} annealed"])
        fits = cells[f"gaussians {model}"]["fits"]
        fits = fits | {family: cells[f"svi {model} {family}"] for family in FAMILIES}
        described = {}
        for name, fit in fits.items():
            q = read_gaussian(fit)
            scores = q.log_prob(draws)
            described[name] = {
                "model": model,
                "title": TITLES[name],
                "loss": minus(cell["log_evidence"], fit["elbo"]),
                "error": np.hypot(fit["elbo_error"] or np.nan, cell["log_evidence_error"]),
                "score": np.mean(scores),
                "score_error": np.std(scores, ddof=1) / np.sqrt(len(draws)),
                "off": distance(q.mean, mean, std),
                "width": np.exp(np.mean(np.log(q.std / std))),
                "cost": (fit["forward_equivalents"] + search * (name not in FAMILIES)) / 1e6,
            }
        found += described.values()
        laplace = described[LAPLACE]
        for family in FAMILIES:
            better[family][0].append(laplace["loss"] < described[family]["loss"])
            better[family][1].append(bool(laplace["score"] > described[family]["score"]))
        ratio = described["full-rank"]["cost"] / described[EL2O]["cost"]
        ratios.append(f"{ratio:.1f} (`{model}`)")
    shorts = []
    for family in FAMILIES:
        reverse, forward = map(_where, better[family])
        words = f"{reverse} by {_REVERSE}, {forward} by {_FORWARD}"
        shorts.append(
            f"More accurate than {TITLES[family]}: {reverse if reverse == forward else words}."
        )
    form = "`{model}` | {title} | {loss:.2f} ± {error:.2f} | {score:.1f} ± {score_error:.1f}"
    form += " | {off:.2f} | {width:.2f} | {cost:.3f}"
    return {"short": " ".join(shorts), "ratios": listed(ratios), "rows": rows(form, found)}


def _where(holds: list[bool]) -> str:
    """Under which priors something holds."""
    return "yes" if all(holds) else f"under {listed(under(holds))} only" if any(holds) else "no"


def check_samples(cells: Cells) -> dict[str, Any]:
    """Does full-rank SVI have a higher ELBO with more draws per step?"""
    cell = cells[f"posterior {OURS} {NOISY}"]
    mean, std = np.array(cell["mean"]), np.array(cell["std"])
    whole = cells[f"svi {OURS} full-rank"]
    runs = {samples: cells[f"samples {samples}"]["runs"] for samples in REPEATS}
    found = []
    for samples, fits in (runs | {whole["samples"]: [whole]}).items():
        gaps = [minus(cell["log_evidence"], fit["elbo"]) for fit in fits]
        found.append(
            {
                "samples": samples,
                "runs": len(fits),
                "loss": float(np.mean(gaps)),
                "error": max(fit["elbo_error"] or np.nan for fit in fits),
                "range": f"{min(gaps):.3f} to {max(gaps):.3f}" if len(fits) > 1 else "",
                "off": np.mean([distance(read_gaussian(fit).mean, mean, std) for fit in fits]),
                "cost": np.mean([fit["forward_equivalents"] for fit in fits]) / 1e6,
            }
        )
    first, middle, last = found[0], found[2], found[-1]
    gain, late = (each["loss"] - last["loss"] for each in (first, middle))
    bars = [3 * float(np.hypot(each["error"], last["error"])) for each in (first, middle)]
    short = "No."
    if gain > bars[0]:
        short = f"Up to {middle['samples']} draws, not beyond." if abs(late) < bars[1] else "Yes."
    single = [str(each["samples"]) for each in found if each["runs"] == 1]
    once = ""
    if single:
        once = f"With {listed(single)} draws there is one run{' each' * (len(single) > 1)}, and the"
        once += " errors are those of the ELBO's estimate, without the scatter between runs."
    form = "{samples} | {runs} | {loss:.3f} | {range} | {off:.2f} | {cost:.2f}"
    return {
        "short": short,
        "steps": whole["steps"],
        "sizes": [each["samples"] for each in (first, middle, last)],
        "falls": [gain, late],
        "bars": bars,
        "once": once,
        "rows": rows(form, found),
    }


def check_stability(cells: Cells) -> dict[str, Any]:
    """Does full-rank SVI without an offset on the diagonal break at rising learning rates?"""
    found, bad, ends = [], dict.fromkeys(RATES, 0), {rate: [] for rate in RATES}
    for diagonal in DIAGONALS:
        for rate in RATES:
            cell = cells[f"stability {diagonal} {rate:g}"]
            elbos = [elbo for elbo in cell["elbos"] if elbo is not None]
            bad[rate] += cell["broken"] + cell["fallen"]
            ends[rate] += elbos
            end = f"{np.mean(elbos):.1f}" if elbos else "-"
            found.append(cell | {"diagonal": diagonal, "rate": rate, "end": end})
    finite = [fit["finite"] for fit in by_model(cells, "svi", "full-rank").values()]
    steps, samples = found[0]["steps"], found[0]["samples"]
    short = f"No instability was seen in {steps} steps under `{OURS}`."
    if bad[RATES[0]] or not all(finite):
        short = "Yes."
    elif any(bad.values()):
        short = (
            f"Not at the paper's learning rate of {RATES[0]:g}; at higher ones it can be unstable."
        )
    best = cells[f"svi {OURS} full-rank"]["elbo"]
    below = {rate: best - np.mean(elbos) for rate, elbos in ends.items() if elbos}
    slow = [f"{rate:g} by {gap:.0f} nats" for rate, gap in below.items() if gap > _BELOW]
    unfinished = ""
    if slow:
        unfinished = (
            "Not all runs had converged, so that more steps might show more: they ended below the"
            f" full-rank fit of the comparison above at a rate of {listed(slow)}."
        )
    form = "{diagonal} | {rate:g} | {broken} of {runs} | {fallen} of {runs} | {end}"
    return {
        "short": short,
        "samples": samples,
        "steps": steps,
        "unfinished": unfinished,
        "finite": f"{sum(finite)} of {len(finite)}",
        "rows": rows(form, found),
    }


def check_means(cells: Cells) -> dict[str, Any]:
    """Where are SVI's means, and do they belong there?"""
    found, fits = [], []
    for model in MODELS:
        cell = cells[f"posterior {model} {NOISY}"]
        mode, mean, std = (np.array(cell[name]) for name in ("map", "mean", "std"))
        points = {"deepest mode": (mode, cell["rms"])}
        for family in FAMILIES:
            fit = cells[f"svi {model} {family}"]
            points[TITLES[family]] = (np.array(fit["mean"]), fit["rms"])
        described = [
            {
                "model": model,
                "point": name,
                "mode": distance(point, mode, std),
                "mean": distance(point, mean, std),
                "rms": rms,
            }
            for name, (point, rms) in points.items()
        ]
        found += described
        fits += [(fit, described[0]) for fit in described[1:]]
    number = len(fits)
    away = sum(fit["mode"] > _AWAY for fit, _ in fits)
    fault = sum(fit["mean"] > mode["mean"] for fit, mode in fits)
    short = "Away: " + ("yes." if away == number else f"in {away} of {number} fits.")
    short += " A fault: " + (f"in {fault} of {number} fits." if fault else "no.")
    return {
        "short": short,
        "right": number - fault,
        "nearer": sum(mode["rms"] < fit["rms"] for fit, mode in fits),
        "fits": number,
        "rows": rows("`{model}` | {point} | {mode:.2f} | {mean:.2f} | {rms:.3f}", found),
    }
