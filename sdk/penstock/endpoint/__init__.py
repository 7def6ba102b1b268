"""HTTP servers that run beside a user: the dev server, the console, and the figures for Prometheus."""
