"""From the records of `__cluster_metadata` to one immutable picture of the cluster, and from picture to picture."""
