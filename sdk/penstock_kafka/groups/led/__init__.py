"""Groups whose leader assigns, as Kafka Connect's workers do: their state is a document that gateways share."""
