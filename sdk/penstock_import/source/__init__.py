"""Kafka topics as the copier reads them: addresses, settings, records, and the reader."""
