from penstock_core.push.subscription import SubscriptionNote, note_of
from tests.core.push.push_samples import FULL


def test_note_tells_what_a_sender_of_messages_needs() -> None:
    assert note_of(FULL) == SubscriptionNote(
        name=FULL.name, subscription_id=FULL.subscription_id, version=3, concurrency=20, is_paused=True
    )
