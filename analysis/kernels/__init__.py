"""Kernels: NumPy functions from a bucket's history to hits, one file a concern, no Spark in sight.

A kernel finds everything that fits a class and does not rank: `analysis.kernels.classify` decides
under which one class a message is counted. Every kernel has a slow, obvious oracle in
tests/oracles.
"""
