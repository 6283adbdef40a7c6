"""Secrets: read from the environment or a file at the last moment, never shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import path_below, read_text

HIDDEN: Final = "(secret)"
#: Size of the largest secret: tokens have some kilobytes.
_MOST_BYTES: Final = 1 << 20


class Secret:
    """A secret's text. Whatever prints, formats or pickles it gets `HIDDEN`; `reveal` is the one
    way in."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for who hands it to a client."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (HIDDEN,)


#: Texts of variables that were read: they are not in the environment any more.
_TAKEN: dict[str, str] = {}


def _taken(variable: str) -> str:
    """A variable's text, out of the environment: no process that is started from now on inherits
    it."""
    if text := os.environ.pop(variable, ""):
        _TAKEN[variable] = text
    return _TAKEN.get(variable, "")


class SecretSource(BaseModel):
    """Where a secret is: in an environment variable, or in a file next to the connection file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str = Field("", description="The environment variable that holds it.")
    file: str = Field("", description="File with the secret; a line break at its end is removed.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.env) == bool(self.file):
            raise ValueError(
                "requires env (the name of a variable) or file (a path); never write the secret "
                "here"
            )
        return self

    def read(self, key: str, folder: Path) -> Secret:
        """The secret, as it is now.

        Args:
            key: of the connection file, for messages.
            folder: of the connection file.

        Raises:
            EnvironmentNotReady: the variable is not set, the file cannot be read, or it is empty.
        """
        if self.env:
            text, where = _taken(self.env), f"the environment variable {self.env}"
            hint = f"set it: read -rs {self.env}; export {self.env}"
        else:
            hint = "write a text file that only you can read, with the secret alone"
            try:
                path = path_below(folder, self.file)
                where, text = str(path), read_text(path, _MOST_BYTES).rstrip("\r\n")
            except UsageError as error:
                raise EnvironmentNotReady(f"{key}: {error}", hint=hint) from None
        if not text:
            raise EnvironmentNotReady(f"{key}: {where} is empty or not set", hint=hint)
        return Secret(text)
