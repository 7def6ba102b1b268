"""Zones: their states, the quorum of an append, and the pass that brings a zone back in sync."""
