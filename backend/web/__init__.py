"""What the studio's server and the API's have in common: who may reach them, how often, how slowly."""
