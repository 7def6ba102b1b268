"""The release of this code. The service tells it (`GET /v1/zones`), and `penstock doctor` compares it with its own."""

VERSION = "0.1.0"
