"""What a subscription delivers to: targets, the shapes they get, and the answers they give."""
