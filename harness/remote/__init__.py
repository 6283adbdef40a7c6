"""Runs workers on other machines: shipped, started, commanded and sealed there, on the driver's
time line."""
