"""How probable data are, given the clean image that the generator shows."""
