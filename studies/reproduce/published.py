"""What the paper and the notebooks published with it say: the only numbers typed in by hand."""

SIGMA_MODEL = 0.1
LATENT = 10
BLOCKS, BLOCK_LAYERS, WIDTH = 4, 2, 512
COUPLINGS, FLOW_LAYERS, FLOW_WIDTH = 8, 2, 512
BATCH, LEARNING_RATE = 1024, 1e-3
REMOVED = 0.95
NOISE = 0.5
COLUMNS = {"masknoise05": (14, 27), "solidmask": (10, 23)}
"""First and last that are removed."""
KERNEL_STD, KERNEL_SIDE = 3, 11
"""Of the blur, in pixels."""
STARTS = 10
APPENDIX_STARTS = 20
SECONDS_PER_START = 10.0
DEEPEST = (4, 10)
"""Starts on the noisy half-masked 4 that end in the deepest minimum, of so many."""
MASKED_WEIGHTS = (0.244, 0.074, 0.683)
"""Of the notebook; the text says 25 % and 75 %."""
MASKED_TEXT = (0.25, 0.75)
DOMINATING = 2
"""Minima of the masked 4 that dominate."""
NOISY_WEIGHTS = (0.9992, 0.0008)
SVI_SAMPLES = 512
SVI_STEPS = 8000
SVI_NOTEBOOK_STEPS = (7000, 10000)
SVI_SECONDS = {"mean-field": (130.0, 130.0), "full-rank": (170.0, 185.0)}
"""Shortest and longest that text and notebook give."""
