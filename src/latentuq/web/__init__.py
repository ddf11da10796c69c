"""The interactive page: a server that answers at once, and processes that compute for it."""
