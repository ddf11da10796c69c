"""Does what the posterior says happen as often as it says? Ranks, coverage, scores, studies."""
