"""Does what the posterior says happen as often as it says? Checks of priors on known truths."""
