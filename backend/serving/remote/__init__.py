"""The studio speaks on a cluster: a model there that is used like one of this process."""
