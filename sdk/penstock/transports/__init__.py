"""The transports other than HTTP: each module opens one. The SDK loads them by name, when a client asks (ADR 63)."""
