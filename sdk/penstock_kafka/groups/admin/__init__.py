"""Groups as operators see them."""
