"""Lambda entry points: decode the request, call a use case, encode the answer.

Each module here but `router` is named for a function, and has `handler`, which Lambda calls. A function of the API has
`serve(event, instance)`, free of AWS. The rooms `routes` and `tasks` have the parts of functions with several.
"""
