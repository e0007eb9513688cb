"""One build of a dataset: its process, its Ray pipelines and its progress."""
