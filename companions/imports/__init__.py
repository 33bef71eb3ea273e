"""Results measured elsewhere: tables of runs or epochs become a result set that chapters and documents read."""
