"""The account for the management of a cluster that brokerstorm started, found by the cluster's
addresses."""

from __future__ import annotations

from urllib.parse import urlsplit

from harness.clusters.layout import addresses
from harness.clusters.layout.management import Management


def management_at(admin_url: str) -> Management:
    """The account for the brokers at these addresses; its files are there as long as they run."""
    host = urlsplit(admin_url.partition(",")[0]).hostname or ""
    run_id = next(claim.run_id for claim in addresses.claims() if f"127.0.{claim.block}." in host)
    return Management(run_id)
