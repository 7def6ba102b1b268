"""A web service that stores each order in a topic before it answers.

    pip install fastapi uvicorn "./penstock-0.1.0-py3-none-any.whl[async]"
    uvicorn --factory fastapi_producer:create_app

- One AsyncProducer serves all requests. It starts and closes with the application, so the records of requests that are
  under way at the end are still stored.
- Requests that come together share a batch, so many orders cost one call to the service.
- 201 means that the order is stored. After 503 it may be stored all the same: the client sends the same `order_id`
  again, and a consumer drops the second one.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from penstock import AsyncProducer, PenstockError

TOPIC = "orders"


class Order(BaseModel):
    """The body of a request."""

    order_id: str
    customer: str
    cents: int


class Stored(BaseModel):
    """The answer: the place of the order's record."""

    partition: int
    offset: int


def create_app(open_producer: Callable[[], AsyncProducer] = AsyncProducer) -> FastAPI:
    """The application. `open_producer` is called once, in the event loop; tests pass their own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_producer() as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def place_order(order: Order, request: Request) -> Stored:
        producer: AsyncProducer = request.app.state.producer
        try:
            sent = await producer.send(TOPIC, order.model_dump_json(), key=order.customer)
            stored = await sent
        except PenstockError as error:
            raise HTTPException(status_code=503, detail=f"the order may not be stored: {error}") from error
        return Stored(partition=stored.partition, offset=stored.offset)

    return app
