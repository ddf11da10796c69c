"""Datasets and image files: everything that enters as pixels and leaves as values in [0, 1]."""
