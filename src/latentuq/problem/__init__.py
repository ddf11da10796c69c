"""Inverse problems: prior, forward model, likelihood and data as one density; problem files."""
