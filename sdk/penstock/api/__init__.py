"""Calls of the HTTP API, each a request and the parsing of its answer."""
