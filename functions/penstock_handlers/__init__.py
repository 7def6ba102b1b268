"""Lambda entry points: decode the request, call a use case, encode the answer.

Each module named for a function has a function free of AWS, and `handler`, which Lambda calls. The former is
`serve(event, instance)` where a request comes in, and `run(instance)` where a schedule starts it.
"""
