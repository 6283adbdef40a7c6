"""Steps of a scenario -> a timeline of firings: kinds, times and targets, decided by a seed."""
