"""Judging as a Spark job: the session, a task per bucket, the merge on the driver."""
