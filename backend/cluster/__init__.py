"""Ray: finding, starting and joining a cluster, and shipping the code to its workers."""
