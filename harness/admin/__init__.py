"""What the admins of all systems share: failover between nodes, readiness, probes, TLS, clocks."""
