"""Shared by the admins of all systems: failover, probes, health, TLS, clocks."""
