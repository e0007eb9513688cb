"""Object storage: what machines without a common file system share, as objects in a bucket or files in a folder."""
