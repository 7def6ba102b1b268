"""The OpenAPI document of the API: the handlers make it, `make openapi` writes it."""
