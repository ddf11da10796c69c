"""What a program around the library calls: the command line, and any other."""
