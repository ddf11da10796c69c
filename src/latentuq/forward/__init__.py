"""Linear operators: what the instrument does to the image before noise is added."""
