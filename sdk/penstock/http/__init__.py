"""HTTP: messages, signatures, transports, and the clients that drive calls."""
