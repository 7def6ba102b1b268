"""Sockets: frames of bounded size, one task per connection, back-pressure, and an end that finishes what began."""
