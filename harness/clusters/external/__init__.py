"""Clusters that brokerstorm did not start: who they are, and the little that is made on them.

external = identified(read_connection(path))      # asks it who it is, makes nothing
cluster = external.cluster("run id", folder)
...
cluster.down()                              # removes what the run made; the cluster stays
"""

from harness.clusters.external.cluster import External, ExternalCluster, identified
from harness.clusters.external.made import MadeBy, made_on

__all__ = ["External", "ExternalCluster", "MadeBy", "identified", "made_on"]
