"""The items of push subscriptions: the subscription, its notes, its lanes, and its state in each partition."""
