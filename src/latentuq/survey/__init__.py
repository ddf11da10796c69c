"""Whole surveys: the same inference for each of many images, in workers, into one store."""
