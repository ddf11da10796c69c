"""Inverse problems: prior, forward model, likelihood and data as one density; problem files."""

from latentuq.problem.inverse import InverseProblem, LatentDensity, Simulation, observe

__all__ = ["InverseProblem", "LatentDensity", "Simulation", "observe"]
