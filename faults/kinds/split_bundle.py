"""split-bundle: a bundle becomes two, as when a broker finds it too busy."""

from __future__ import annotations

import random

from pydantic import Field

from faults.kinds.transfer import bundle_target
from faults.kit.bundles import NAMESPACE_URL, ServiceUnit, bundle_rule, choose_bundle
from faults.kit.cluster_view import ClusterView
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, Params
from faults.kit.reload import Reload
from harness.errors import BrokerstormError
from harness.protocols.cluster import HasBundles, Proof


class SplitBundleParams(Params):
    target: str = Field("random", description="`bundle-of:TOPIC`, `bundle:RANGE` or `random`")


class SplitReload(Reload):
    """One bundle halved and unloaded."""

    def __init__(self, view: ClusterView, bundle: str) -> None:
        params = SplitBundleParams(target=f"bundle:{bundle}")
        super().__init__(view, [params.target], ServiceUnit("bundle", bundle).streams(view), params)
        self.bundle = bundle
        self._bundles_before = len(view.bundles.bundle_owners())

    def apply(self) -> None:
        self.view.bundles.split_bundle(self.bundle)
        self.done = 1

    def proof(self) -> Proof:
        """Effective when the bundle is gone and there are more: the brokers answer before they
        split."""
        proof = super().proof()
        try:
            now = self.view.bundles.bundle_owners()
        except BrokerstormError as error:
            return Proof(False, f"the cluster does not answer: {error}")
        split = self.bundle not in now and len(now) > self._bundles_before
        text = f"{self._bundles_before} bundles -> {len(now)}; {proof.evidence}"
        return Proof(split, text, {**proof.details, "bundles": [self._bundles_before, len(now)]})


class SplitBundle(FaultKind[SplitBundleParams]):
    """Split a bundle in two and unload both halves."""

    kind = "split-bundle"
    abilities = (HasBundles,)
    params = SplitBundleParams

    def complete(self, params: SplitBundleParams, inventory: Inventory) -> SplitBundleParams:
        bundle_target(params.target, inventory)
        return params

    def commands(self, params: SplitBundleParams, inventory: Inventory) -> list[str]:
        return [f"PUT {NAMESPACE_URL}/{bundle_rule(params.target)}/split?unload=true"]

    def prepare(self, params: SplitBundleParams, view: ClusterView, draw: int) -> SplitReload:
        return SplitReload(view, choose_bundle(params.target, view, random.Random(draw)))
