"""Tokens that brokers of ours accept: JSON Web Tokens (RFC 7519) under HMAC-SHA-256."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

from harness.connections.secret import Secret


def signed_token(key: Secret, user: str, valid: tuple[datetime, datetime] | None = None) -> Secret:
    """A token of a user.

    Args:
        key: what the brokers check it with, at least 32 bytes.
        valid: first and last moment, in whole seconds; default: without an end, which Kafka refuses.
    """
    span = {"iat": int(valid[0].timestamp()), "exp": int(valid[1].timestamp())} if valid else {}
    head = f"{_encoded({'alg': 'HS256'})}.{_encoded({'sub': user, **span})}"
    signature = hmac.digest(key.reveal().encode(), head.encode(), hashlib.sha256)
    return Secret(f"{head}.{_base64(signature)}")


def key_set(key: Secret) -> Secret:
    """What brokers check tokens with, as a JSON Web Key Set (RFC 7517)."""
    return Secret(json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": _base64(key.reveal().encode())}]}))


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
