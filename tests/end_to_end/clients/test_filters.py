"""A filter on the deployed functions: they load the codec, and read only what the tags do not exclude."""

import pytest

from penstock import Admin, Consumer, Producer
from penstock.model import TopicPartition
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
RECORDS = 30


@pytest.mark.parametrize("policy", [{"tag": ["t3"]}, {"number": [{"numeric": [">=", 3, "<", 4]}]}])
def test_consumer_gets_what_matches_from_the_deployed_functions(
    stack: Stack, admin: Admin, policy: dict[str, list[object]]
) -> None:
    name = f"filtered-{next(iter(policy))}"
    admin.create_topic(name, 1, {"index_tags": True})
    with Producer(transport=stack.transport()) as producer:
        for number in range(RECORDS):
            headers = [("tag", b"t%d" % (number % 10)), ("number", b"%d" % (number % 10))]
            producer.send(name, b"%d" % number, headers=headers)
            producer.flush()
    partition, end, found = TopicPartition(name, 0), RECORDS, list[bytes | None]()

    def is_at_end() -> bool:
        found.extend(record.value for record in consumer.poll())
        return consumer.position(partition) == end

    with Consumer(transport=stack.transport(), filter=policy) as consumer:
        consumer.assign([partition])
        until(is_at_end)
        with Producer(transport=stack.transport()) as producer:
            producer.send(name, b"other", headers=[("tag", b"t4")])
            producer.send(name, b"last", headers=[("tag", b"t3"), ("number", b"3")])
        end += 2
        until(is_at_end)
    assert found == [b"3", b"13", b"23", b"last"]
