"""What every room needs: errors, arrays, files, options, compiling."""
