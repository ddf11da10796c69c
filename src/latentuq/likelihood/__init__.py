"""How probable data are, given the clean image: noise, model error, whitening."""
