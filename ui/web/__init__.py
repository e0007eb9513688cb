"""The web server around the page: login, links, served files, theme."""
