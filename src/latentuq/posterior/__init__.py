"""The answer to an inverse problem: Posterior, how it is found, and how it is kept."""
