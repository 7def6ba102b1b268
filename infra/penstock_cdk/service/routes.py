"""Every route of the HTTP API and its function. A test holds that docs/openapi.json has the same routes.

The API for tokens has `TOKEN_ROUTES` only. A test holds that the handlers take no token on any other.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method and path of the API. `function` names a module of functions/penstock_handlers."""

    method: str
    path: str
    function: str


CREATE_TOPIC = Route(method="POST", path="/v1/topics", function="topics")
LIST_TOPICS = Route(method="GET", path="/v1/topics", function="topics")
TOPIC_METADATA = Route(method="GET", path="/v1/metadata", function="topics")
WAKE_UPS = Route(method="GET", path="/v1/wake-ups", function="topics")
DESCRIBE_TOPIC = Route(method="GET", path="/v1/topics/{topic}", function="topics")
ALTER_TOPIC = Route(method="PATCH", path="/v1/topics/{topic}", function="topics")
DELETE_TOPIC = Route(method="DELETE", path="/v1/topics/{topic}", function="topics")
LIST_OFFSETS = Route(method="GET", path="/v1/topics/{topic}/offsets", function="topics")
TRUNCATE = Route(method="POST", path="/v1/topics/{topic}/truncate", function="topics")
LIST_SCHEDULED = Route(method="GET", path="/v1/topics/{topic}/scheduled", function="topics")
CANCEL_SCHEDULED = Route(method="DELETE", path="/v1/topics/{topic}/scheduled/{timer}", function="topics")
PRODUCE = Route(method="POST", path="/v1/produce", function="produce")
BEGIN_TRANSACTIONS = Route(method="POST", path="/v1/producers", function="transactions")
RELEASE_PRODUCER = Route(method="POST", path="/v1/producers/{transactional_id}/release", function="transactions")
TRANSACT = Route(method="POST", path="/v1/transactions", function="transactions")
FETCH = Route(method="POST", path="/v1/fetch", function="fetch")
PRODUCE_RECORDS = Route(method="POST", path="/v1/topics/{topic}/records", function="records_produce")
FETCH_RECORDS = Route(method="GET", path="/v1/topics/{topic}/partitions/{partition}/records", function="records_fetch")
LIST_GROUPS = Route(method="GET", path="/v1/groups", function="group_admin")
DESCRIBE_GROUP = Route(method="GET", path="/v1/groups/{group}", function="group_admin")
ALTER_GROUP = Route(method="PATCH", path="/v1/groups/{group}", function="group_admin")
DELETE_GROUP = Route(method="DELETE", path="/v1/groups/{group}", function="group_admin")
RESET_OFFSETS = Route(method="POST", path="/v1/groups/{group}/reset", function="group_admin")
DELETE_OFFSETS = Route(method="POST", path="/v1/groups/{group}/offsets/delete", function="group_admin")
HEARTBEAT = Route(method="POST", path="/v1/groups/{group}/heartbeat", function="groups")
COMMIT_OFFSETS = Route(method="POST", path="/v1/groups/{group}/offsets", function="groups")
COMMITTED_OFFSETS = Route(method="GET", path="/v1/groups/{group}/offsets", function="groups")
READ_DOCUMENT = Route(method="GET", path="/v1/groups/{group}/document", function="groups")
PUT_DOCUMENT = Route(method="PUT", path="/v1/groups/{group}/document", function="groups")
LIST_SHARE_GROUPS = Route(method="GET", path="/v1/share-groups", function="share_admin")
PUT_SHARE_GROUP = Route(method="PUT", path="/v1/share-groups/{group}", function="share_admin")
DESCRIBE_SHARE_GROUP = Route(method="GET", path="/v1/share-groups/{group}", function="share_admin")
DELETE_SHARE_GROUP = Route(method="DELETE", path="/v1/share-groups/{group}", function="share_admin")
RESET_SHARE_GROUP = Route(method="POST", path="/v1/share-groups/{group}/reset", function="share_admin")
ACQUIRE_RECORDS = Route(method="POST", path="/v1/share-groups/{group}/records", function="share")
ACQUIRE = Route(method="POST", path="/v1/share-groups/{group}/acquire", function="share")
ACKNOWLEDGE = Route(method="POST", path="/v1/share-groups/{group}/acknowledge", function="share")
REDRIVE = Route(method="POST", path="/v1/topics/{topic}/redrive", function="share")
LIST_SUBSCRIPTIONS = Route(method="GET", path="/v1/subscriptions", function="subscriptions")
PUT_SUBSCRIPTION = Route(method="PUT", path="/v1/subscriptions/{name}", function="subscriptions")
DESCRIBE_SUBSCRIPTION = Route(method="GET", path="/v1/subscriptions/{name}", function="subscriptions")
DELETE_SUBSCRIPTION = Route(method="DELETE", path="/v1/subscriptions/{name}", function="subscriptions")
PAUSE_SUBSCRIPTION = Route(method="POST", path="/v1/subscriptions/{name}/pause", function="subscriptions")
RESUME_SUBSCRIPTION = Route(method="POST", path="/v1/subscriptions/{name}/resume", function="subscriptions")
LIST_QUOTAS = Route(method="GET", path="/v1/quotas", function="quotas")
PUT_QUOTA = Route(method="PUT", path="/v1/quotas", function="quotas")
DELETE_QUOTA = Route(method="DELETE", path="/v1/quotas", function="quotas")
LIST_ZONES = Route(method="GET", path="/v1/zones", function="zones")
MOVE_ZONE = Route(method="POST", path="/v1/zones/{zone}", function="zones")
LIST_ACLS = Route(method="GET", path="/v1/acls", function="acls")
CHANGE_ACLS = Route(method="POST", path="/v1/acls", function="acls")
DELETE_ACL = Route(method="DELETE", path="/v1/acls", function="acls")
CHECK_ACL = Route(method="POST", path="/v1/acls/check", function="acls")

_OPERATED = (
    LIST_SUBSCRIPTIONS,
    PUT_SUBSCRIPTION,
    DESCRIBE_SUBSCRIPTION,
    DELETE_SUBSCRIPTION,
    PAUSE_SUBSCRIPTION,
    RESUME_SUBSCRIPTION,
    LIST_QUOTAS,
    PUT_QUOTA,
    DELETE_QUOTA,
    LIST_ZONES,
    MOVE_ZONE,
    LIST_ACLS,
    CHANGE_ACLS,
    DELETE_ACL,
    CHECK_ACL,
)
ROUTES = (
    CREATE_TOPIC,
    LIST_TOPICS,
    TOPIC_METADATA,
    WAKE_UPS,
    DESCRIBE_TOPIC,
    ALTER_TOPIC,
    DELETE_TOPIC,
    LIST_OFFSETS,
    TRUNCATE,
    LIST_SCHEDULED,
    CANCEL_SCHEDULED,
    PRODUCE,
    BEGIN_TRANSACTIONS,
    RELEASE_PRODUCER,
    TRANSACT,
    FETCH,
    PRODUCE_RECORDS,
    FETCH_RECORDS,
    LIST_GROUPS,
    DESCRIBE_GROUP,
    ALTER_GROUP,
    DELETE_GROUP,
    RESET_OFFSETS,
    DELETE_OFFSETS,
    HEARTBEAT,
    COMMIT_OFFSETS,
    COMMITTED_OFFSETS,
    READ_DOCUMENT,
    PUT_DOCUMENT,
    LIST_SHARE_GROUPS,
    PUT_SHARE_GROUP,
    DESCRIBE_SHARE_GROUP,
    DELETE_SHARE_GROUP,
    RESET_SHARE_GROUP,
    ACQUIRE_RECORDS,
    ACQUIRE,
    ACKNOWLEDGE,
    REDRIVE,
    *_OPERATED,
)

_IAM_ONLY = (WAKE_UPS, RELEASE_PRODUCER, *_OPERATED)
TOKEN_ROUTES = tuple(route for route in ROUTES if route not in _IAM_ONLY)
