"""Suites: what runs every night, over clients, brokers, settings and seeds."""
