"""Money: counted operations times the price table, for Penstock and for what users would pick instead.

capture.py runs the handlers on moto and counts what AWS would meter of each request. The counts go into the SDK
(`sdk/penstock/cost/counted.json`), where `penstock cost` prices them. The tables price the same counts.
"""
