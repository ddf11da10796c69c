"""VAE, flow, model error, and the generative prior they make together."""
