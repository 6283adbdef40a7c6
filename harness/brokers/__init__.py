"""Admins: readiness, topics, leaders and owners of each broker system."""
