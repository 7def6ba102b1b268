"""The price of a workload's month, and of yesterday's real use.

`counted.json` has what AWS meters of single requests, captured from the handlers (`python -m bench.money capture`). All
dollars are these counts times `penstock.prices`. others.py prices the same workload on other systems, from their
billing rules and not from captured calls.
"""
