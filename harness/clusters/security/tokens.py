"""Tokens that Pulsar's brokers accept: JSON Web Tokens (RFC 7519) under HMAC-SHA-256, without an end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from harness.connections.secret import Secret


def signed_token(key: Secret, user: str) -> Secret:
    """A token of a user. ``key``: what the brokers check it with, at least 32 bytes."""
    head = f"{_encoded({'alg': 'HS256'})}.{_encoded({'sub': user})}"
    signature = hmac.digest(key.reveal().encode(), head.encode(), hashlib.sha256)
    return Secret(f"{head}.{_base64(signature)}")


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
