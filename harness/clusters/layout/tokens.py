"""Tokens that brokers of ours accept: JSON Web Tokens (RFC 7519) under HMAC-SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime

from harness.clusters.layout.node_layout import base64_of
from harness.connections.secret import Secret
from harness.rundir import Document


def signed_token(key: Secret, user: str, valid: tuple[datetime, datetime] | None = None) -> Secret:
    """A token of a user.

    Args:
        key: what the brokers check it with, at least 32 bytes.
        valid: first and last moment, in whole seconds; default: without an end, which Kafka
            refuses.
    """
    span = {"iat": int(valid[0].timestamp()), "exp": int(valid[1].timestamp())} if valid else {}
    head = f"{_encoded({'alg': 'HS256'})}.{_encoded({'sub': user, **span})}"
    signature = hmac.digest(key.reveal().encode(), head.encode(), hashlib.sha256)
    return Secret(f"{head}.{base64_of(signature)}")


def key_set(key: Secret) -> Secret:
    """Return the JSON Web Key Set with which brokers check tokens (RFC 7517)."""
    return Secret(
        json.dumps(
            {"keys": [{"kty": "oct", "alg": "HS256", "k": base64_of(key.reveal().encode())}]}
        )
    )


def _encoded(part: Document) -> str:
    return base64_of(json.dumps(part, separators=(",", ":")).encode())
