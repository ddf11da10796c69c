"""What only we run: comparisons, references, the paper, and the pages of results."""
