"""A run made again, and whether its numbers are the same."""
