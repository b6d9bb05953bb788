"""Charts of sums in log space, made the fast way where that is exact."""
