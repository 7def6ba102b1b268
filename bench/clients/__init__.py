"""Benches of the SDK: its clients, with a service that costs them nothing or little."""
