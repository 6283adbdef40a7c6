"""From findings to the verdict: coverage, rate, attribution, statistics of rounds, the result."""
