"""TLS, and names and passwords by SASL/PLAIN, for a gateway that other hosts reach."""
