"""The bodies of requests and answers of the JSON API, as pydantic models: no binary path loads them."""
