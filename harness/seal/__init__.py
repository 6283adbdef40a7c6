"""Raw segments -> sealed Parquet, bucketed so that one task has all it needs."""
