"""Where the API runs: in this process, or as deployments of Ray Serve."""
