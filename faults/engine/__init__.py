"""Fires a timeline at a live cluster: injection, proof of effect, heal, the ledger and the
journal."""
