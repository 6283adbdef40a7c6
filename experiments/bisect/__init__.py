"""Where a class begins or ends: between two releases, or between two commits."""
