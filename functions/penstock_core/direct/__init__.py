"""Direct calls: clients invoke the functions by Lambda's API, past API Gateway (docs/adr/0065)."""
