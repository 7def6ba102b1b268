"""HTTP servers that run on a user's machine: the dev server, the console, and the figures for Prometheus."""
