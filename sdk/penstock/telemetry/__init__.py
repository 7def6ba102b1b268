"""OpenTelemetry: spans, metrics and trace context by the messaging conventions, if the application has a provider."""
