"""What Penstock does and costs, measured on the deployed local stack; docs/performance.md has the figures."""
