"""The drivers of a connection file: how nodes that somebody else started are killed, paused and
started."""

from __future__ import annotations

from typing import Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.durations import Seconds

#: What a driver can do to a node. ``restart`` starts one that is down.
Action = Literal["kill", "stop", "restart", "pause", "resume"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
#: Stands for the node's name wherever a driver says whom it means.
NODE: Final = "{node}"
#: What the check of a command says by its exit code; 1 is what `pgrep` says, 3 is `systemctl
#: is-active`.
CHECK_CODES: Final = {0: "running", 1: "down", 3: "down", 10: "paused"}


def _with_node(text: str) -> str:
    if NODE not in text:
        raise ValueError(f"does not say which node: put {NODE} where its name belongs")
    return text


class ConnectionPart(BaseModel):
    """Of a connection file: a key that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CommandPart(ConnectionPart):
    """A program and its arguments. No shell reads them."""

    run: list[str] = Field(
        min_length=1,
        description="The program and its arguments, a list; {node} is the node's name.",
    )
    timeout: Seconds = Field(30.0, gt=0, description="It is ended when it takes longer.")

    @field_validator("run")
    @classmethod
    def _names_the_node(cls, run: list[str]) -> list[str]:
        _with_node(" ".join(run[1:]))
        return run


class CommandDriverPart(ConnectionPart):
    """Programs of the user's."""

    kill: CommandPart | None = Field(None, description="Ends a node at once, as a crash does.")
    stop: CommandPart | None = Field(None, description="Asks a node to end in good order.")
    restart: CommandPart | None = Field(None, description="Starts a node that is down.")
    pause: CommandPart | None = Field(None, description="Freezes a node.")
    resume: CommandPart | None = Field(None, description="Resumes a frozen node.")
    check: CommandPart = Field(
        description="Tells how a node is by its exit code: 0 running, 1 or 3 down, 10 paused."
    )

    @model_validator(mode="after")
    def _can_heal(self) -> Self:
        for does, undoes in (("kill", "restart"), ("stop", "restart"), ("pause", "resume")):
            if getattr(self, does) and not getattr(self, undoes):
                raise ValueError(f"{does} needs {undoes}: every action needs one that undoes it")
        return self


class DockerDriverPart(ConnectionPart):
    """Containers of a Docker engine."""

    label: str = Field(
        description="A node's container bears it, such as com.docker.compose.service={node}; several are "
        "joined by commas."
    )
    host: str = Field(
        "",
        description="The engine, such as tcp://{node}:2376. Default: DOCKER_HOST, else this machine's.",
    )
    timeout: Seconds = Field(30.0, gt=0, description="How long the engine may take for one answer.")

    @field_validator("label")
    @classmethod
    def _names_the_node(cls, label: str) -> str:
        return _with_node(label)


class KubernetesDriverPart(ConnectionPart):
    """Pods that something starts again, such as a StatefulSet's: killed and stopped, never
    paused."""

    label: str = Field(
        description="Selects a node's pod, such as statefulset.kubernetes.io/pod-name={node}; several are "
        "joined by commas."
    )
    namespace: str = Field("default", description="Where the pods are.")
    kubeconfig: str = Field(
        "", description="The file that says how to reach it. Default: as kubectl's."
    )
    context: str = Field("", description="The context in that file. Default: its current one.")
    timeout: Seconds = Field(
        180.0,
        gt=0,
        description="How long it may take until another pod is ready; an answer: 30 s at most.",
    )

    @field_validator("label")
    @classmethod
    def _names_the_node(cls, label: str) -> str:
        return _with_node(label)


class DriversPart(ConnectionPart):
    """How faults reach its nodes. With several drivers, the first here that can do a thing does
    it."""

    command: CommandDriverPart | None = Field(None, description="By programs of yours.")
    docker: DockerDriverPart | None = Field(None, description="By a Docker engine.")
    kubernetes: KubernetesDriverPart | None = Field(
        None,
        description="By a Kubernetes API server; needs the extra `kubernetes` (docs/howto/install.md).",
    )
