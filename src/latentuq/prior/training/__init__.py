"""Fitting VAE, flow and model error, resumable.

Only the configuration is imported here: the rest pulls in optimisers, and commands that merely
parse flags need none.
"""
