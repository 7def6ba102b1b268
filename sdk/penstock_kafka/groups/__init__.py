"""Consumer groups of Kafka clients as groups of the service (docs/protocol/gateway)."""
