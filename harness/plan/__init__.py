"""Scenario and seed -> plan: everything a run does, decided before anything starts, and what it is promised."""
