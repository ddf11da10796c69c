"""Inverse problems: prior, forward model, likelihood and data as one density; problem files."""

from latentuq.problem.inverse import InverseProblem, Simulation, observe

__all__ = ["InverseProblem", "Simulation", "observe"]
