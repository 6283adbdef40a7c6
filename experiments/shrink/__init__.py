"""Shrinking: the smallest scenario that still shows a class, found by delta debugging over its
parts."""
