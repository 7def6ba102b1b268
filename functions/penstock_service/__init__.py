"""The use cases of the service, one verb per module, on ports that adapters fill.

The core decides, this package does: storage calls, their order, and what a failure between two of them means.
"""
