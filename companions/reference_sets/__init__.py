"""Complete studies become a result set that is committed."""
