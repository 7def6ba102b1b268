"""Handlers of routes whose function serves several: `serve(event, instance)` answers one request."""
