"""The bottom: what a cluster can do, and what faults, runs and runtimes may ask of it."""
