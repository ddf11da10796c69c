"""What the paper and the notebooks published with it say, where we calculate with it.

All other numbers of the paper are typed in where they are shown, in numbers.md and
`studies/text/paper.md`.
"""

SIGMA_MODEL = 0.1
STARTS = 10
APPENDIX_STARTS = 20
SECONDS_PER_START = 10.0
DEEPEST = 4 / 10
"""The share of the starts on the noisy half-masked 4 that end in the deepest minimum."""
WEIGHTS = {"solidmask": (0.244, 0.074, 0.683), "masknoise05": (0.9992, 0.0008)}
"""The weights of the minima in the notebooks."""
SVI_SAMPLES = 512
SVI_STEPS = 8000
SVI_SECONDS = {"mean-field": (130.0, 130.0), "full-rank": (170.0, 185.0)}
"""The shortest and the longest time that text and notebook give."""
