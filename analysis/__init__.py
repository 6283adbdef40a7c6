"""The Spark stage: sealed capture in, findings and a verdict out. Names no client and no broker
library."""
