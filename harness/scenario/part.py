"""The base of every part of a scenario file."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Part(BaseModel):
    """Base of every part of a scenario: unknown keys are errors, types are taken as written, values
    stay."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def must_match(pattern: str, wanted: str) -> BeforeValidator:
    """Check a text before pydantic does, whose message would show the expression.

    Args:
        wanted: what the text must be, after "must be": ``a package at one version``.
    """

    def check(text: Any) -> Any:
        if isinstance(text, str) and not re.search(pattern, text):
            raise ValueError(f"must be {wanted}")
        return text

    return BeforeValidator(check)
