"""A gateway that speaks Kafka's protocol and calls a Penstock service: `penstock kafka` (docs/adr/0055).

The message formats are those of the library `kio`. A batch of records passes through as the bytes that it is.
"""
