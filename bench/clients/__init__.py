"""Benches of the SDK: its clients, beside a service that costs them nothing or little."""
