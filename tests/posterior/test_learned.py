import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from exact_posteriors import make_problem, solve_exactly
from latentuq.posterior.learned import measure_learned
from studies.exact import exact_posterior


@pytest.mark.parametrize("noise", [0.05, 0.5, 50.0], ids=["much", "some", "nothing"])
def test_information_and_variance_of_a_linear_problem_are_exact(noise):
    problem = make_problem(noise=noise)
    post = solve_exactly(problem)
    exact = exact_posterior(problem)
    # KL(N(m, V) || N(0, I)) = (tr V + m.m - dim - ln det V) / 2.
    trace, (_, log_det) = np.trace(exact.covariance), np.linalg.slogdet(exact.covariance)
    expected = 0.5 * (trace + exact.mean @ exact.mean - problem.dim - log_det)
    # E[ln p(y | u)] is averaged over 4,096 draws; ln p(u | y) of a Gaussian has variance dim / 2,
    # and u.u / 2 under the prior as much again.
    assert post.diagnostics.information == pytest.approx(expected, abs=4 * np.sqrt(3 / 4096))
    assert post.diagnostics.variance_left == pytest.approx(trace / problem.dim, rel=0.1)


def test_it_is_said_in_words():
    diagnostics = solve_exactly(make_problem()).diagnostics
    told = dataclasses.replace(diagnostics, information=4.0, variance_left=0.12)
    assert told.learned == (
        "The data leave 12 % of the prior's variance and tell 4 nats: of images that the prior"
        " makes, about one in 55 remains possible."
    )
    assert dataclasses.replace(diagnostics, information=None).learned == ""


def test_it_is_in_the_summary():
    post = solve_exactly(make_problem())
    assert post.diagnostics.learned in post.summary().splitlines()


def test_draws_without_weight_tell_nothing():
    inference = solve_exactly(make_problem()).inference
    weightless = jnp.full(len(inference.draws.log_weights), -jnp.inf)
    draws = dataclasses.replace(inference.draws, log_weights=weightless)
    assert measure_learned(dataclasses.replace(inference, draws=draws)) is None
