"""The routes that change something and leave no trail: they carry records, and the work of consumers and producers.

The log itself is their trail. They load none of the modules that read what the other routes change.
"""

UNAUDITED = frozenset(
    {
        "POST /v1/acls/check",
        "POST /v1/produce",
        "POST /v1/fetch",
        "POST /v1/producers",
        "POST /v1/transactions",
        "POST /v1/topics/{topic}/records",
        "POST /v1/groups/{group}/heartbeat",
        "POST /v1/groups/{group}/offsets",
        "PUT /v1/groups/{group}/document",
        "POST /v1/share-groups/{group}/records",
        "POST /v1/share-groups/{group}/acquire",
        "POST /v1/share-groups/{group}/acknowledge",
    }
)
