"""Lambda entry points: decode the request, call a use case, encode the answer.

Each module named for a function has `serve(event, broker) -> result`, free of AWS, and `handler`, which Lambda calls.
"""
