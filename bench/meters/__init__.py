"""Instruments of the benches: they count calls, units, bytes, CPU and processes."""
