"""Our own clusters with TLS and users: a throw-away authority, certificates, passwords, a
connection file."""
