"""Standard methods to compare with, and the ground truth to compare against: one per module."""

from studies.baselines.result import BaselineResult, pool_evidence

__all__ = ["BaselineResult", "pool_evidence"]
