"""Our inference beside every baseline, on the same problems, in one process."""
