"""A Kombu transport: Celery's queues are share groups (docs/how-to/celery.md).

    import penstock_kombu  # registers penstock:// and penstock+https://

    app = Celery("shop", broker="penstock://")

A queue is a topic and a share group of its name. The modules: `transport` waits for messages, `channel` translates
AMQP's verbs, `delivery` holds what a channel has in flight, `session` has options and clients, `message` is the form of
a record.
"""

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: penstock_kombu needs `pip install 'penstock[celery]'`") from error

from penstock_kombu.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["penstock"] = "penstock_kombu:Transport"
