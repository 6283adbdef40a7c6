"""Pulsar's admin where the caller may say who owns a bundle next."""

from __future__ import annotations

from harness.errors import UsageError
from harness.systems.pulsar.admin import PulsarAdmin

TRANSFERS_SINCE = (3, 0)


class TransferringPulsarAdmin(PulsarAdmin):
    """HasTransfers: brokers that let the caller say who owns a bundle next (`TRANSFERS_SINCE`)."""

    def transfer_bundle(self, bundle: str, to: str) -> None:
        """Unload it and ask that a node owns it next; returns when asked, not when owned.

        Raises:
            UsageError: no such bundle or node.
        """
        if to not in self._ids:
            raise UsageError(
                f"cannot transfer a bundle to {to!r}",
                hint=f"the brokers are {', '.join(node.name for node in self._brokers)}",
            )
        self._rest.put(
            f"/namespaces/{self.namespace}/{bundle}/unload?destinationBroker={self._ids[to]}"
        )
