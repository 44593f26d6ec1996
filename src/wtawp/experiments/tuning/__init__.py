"""The search for hyper-parameters that `wtawp tune` runs, and the comparison of what it finds."""
