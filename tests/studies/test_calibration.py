"""Other methods on the problems of a calibration study."""

import jax
import numpy as np
import pytest

import latentuq as lu
from latentuq.calibration.measure import DRAWS, Truth, measure_draws
from latentuq.core.errors import UserError
from studies.calibration import METHODS, run_calibration
from studies.calibration_cases import Case, Study
from studies.exact import exact_posterior, linear_prior

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", ["laplace", "mean-field", "full-rank"])
def test_baselines_can_be_studied_too(method):
    prior = linear_prior(jax.random.key(0), 2, (4,))
    mask, noise = lu.Mask(np.array([1, 1, 1, 0])), lu.GaussianNoise(0.2)
    base = lu.InverseProblem(prior, mask, noise, np.zeros(4))
    drawn = base.simulate(jax.random.key(1))
    case = Case(base.with_data(drawn.y), Truth(np.asarray(drawn.x), np.asarray(drawn.u)))
    draws, facts = METHODS[method](jax.random.key(0), case)
    assert draws.shape == (DRAWS, 2)
    assert np.isfinite(draws).all()
    # A mean-field Gaussian lacks the correlation; the others are exact.
    tolerance = 1.0 if method == "mean-field" else 0.05
    assert abs(facts["log_evidence"] - exact_posterior(case.problem).log_evidence) < tolerance
    measure_draws(jax.random.key(1), case.problem, draws, case.truth)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (Study("dreamt", "blur", ""), r"no study 'dreamt'; there are simulated, real\.$"),
        (Study("real", "blur", "scalar", "magic"), "no method 'magic'; there are latentuq"),
        (Study("real", "blur", "vague"), "no model error 'vague'"),
    ],
)
def test_what_cannot_be_studied_is_named(study, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run_calibration(study, lu.load_prior("mnist"), 1, tmp_path, 0, lambda name, row: None)
    assert not list(tmp_path.iterdir())
