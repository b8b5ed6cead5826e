"""From the records of `__cluster_metadata` to one immutable image of the cluster, and from image to image."""
