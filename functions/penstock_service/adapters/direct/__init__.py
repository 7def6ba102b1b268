"""The calls of produce and fetch to AWS, without botocore's client: signed, sent and read here (docs/adr/0067)."""
