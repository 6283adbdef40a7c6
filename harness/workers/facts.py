"""Reads ``[promises]`` of a worker.toml: for each setting that decides a promise, the client's own
options.

The names of the settings are ours, the same for every client of a system (`System.worker_facts`).
How they become promises is `harness.plan`'s to know.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from harness.scenario.part import Part


class Versions(Part):
    """Versions of the client: ``from`` is the first, ``before`` the first no more; empty = no such
    end.

    ``client``: only of the client of that name, where a worker serves several (``qpid-jms
    1.12.1``).
    """

    from_: str = Field("", alias="from")
    before: str = ""
    client: str = ""

    def cover(self, text: str) -> bool:
        """Whether a ``client_version`` is one of them; empty = newer than any."""
        name, _, number = text.strip().rpartition(" ")
        asked = version_numbers(number)
        return (
            self.client in ("", name)
            and not (self.from_ and asked < version_numbers(self.from_))
            and not (self.before and asked >= version_numbers(self.before))
        )


class OtherDefault(Versions):
    """Another default in some versions."""

    default: str


class Implied(Versions):
    """A value that another setting or option brings along where this one is not given.

    Attributes:
        when: the setting of ours that must be true, or must have the value ``when_is``.
        with_option: or the beginning of an option that must be given.
        over: values that give way although they were given; ``*`` = any.
        because: for people; empty = the other setting in the client's own words.
    """

    value: str
    when: str = ""
    when_is: str = ""
    with_option: str = ""
    over: list[str] = Field(default_factory=list)
    because: str = ""


class SettingFacts(Part):
    """One setting.

    Attributes:
        options: the client's names for it, the first one wins; none = it cannot be set.
        default: of the newest version; None = what ``[options]`` of the worker sets.
        values: the client's words for ours (``waitforall = "all"``), in lower case.
        words: every value that the client takes, as its documentation has them; empty = it takes
            others, too.
        inverse: the option says the opposite (franz-go's DisableIdempotentWrite).
    """

    options: list[str] = Field(default_factory=list)
    default: str | None = None
    other_defaults: list[OtherDefault] = Field(default_factory=list)
    values: dict[str, str] = Field(default_factory=dict)
    words: list[str] = Field(default_factory=list)
    inverse: bool = False
    implied: list[Implied] = Field(default_factory=list)

    @model_validator(mode="after")
    def _can_be_known(self) -> SettingFacts:
        if not self.options and self.default is None:
            raise ValueError("needs options, or a default that is always in force")
        return self


class CodecFacts(SettingFacts):
    """How a producer compresses, and what a consumer needs to read it.

    Attributes:
        packages: by codec, the Python package without which the client cannot read what is
            compressed so.
    """

    packages: dict[str, str] = Field(default_factory=dict)


class TimeFacts(SettingFacts):
    """A time.

    Attributes:
        unit: of the client's number, or ``duration`` for texts such as ``30s``.
        times: how often it may pass, one after the other, until the client gives up.
    """

    unit: Literal["us", "ms", "s", "duration"]
    times: int = Field(1, ge=1)


def version_numbers(text: str) -> tuple[int, ...]:
    """``3.0.1`` -> (3, 0, 1), for comparing; empty = newer than any."""
    digits = [
        part for part in text.removeprefix("v").replace("-", ".").split(".") if part.isdigit()
    ]
    return tuple(int(part) for part in digits) if digits else (1 << 30,)
