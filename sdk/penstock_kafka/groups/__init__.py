"""Consumer groups of Kafka clients as groups of the service (docs/adr/0057)."""
