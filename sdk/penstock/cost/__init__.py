"""The price of a workload's month, and of yesterday's real use.

`counted.json` has what AWS meters of single requests, captured from the handlers (`python -m bench.money capture`). All
dollars are these counts times `penstock.prices`. The module `others` prices the same workload on other systems, by
their billing rules.
"""
