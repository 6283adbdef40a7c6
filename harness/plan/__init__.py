"""Scenario and seed -> plan: what a run does and what it is promised, decided before anything
starts."""
