"""Inference on plain log densities: search, Laplace and EL2O fits, mixtures, importance weights."""
