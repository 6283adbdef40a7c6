"""Clusters that brokerstorm did not start: who they are, and the little that is made on them.

stranger = meet(read_connection(path))      # asks it who it is, makes nothing
cluster = stranger.cluster("run id", folder)
...
cluster.down()                              # removes what the run made; the cluster stays
"""

from harness.clusters.external.cluster import Examined, ExternalCluster, Stranger, meet
from harness.clusters.external.made import MadeBy, made_on

__all__ = ["Examined", "ExternalCluster", "MadeBy", "Stranger", "made_on", "meet"]
