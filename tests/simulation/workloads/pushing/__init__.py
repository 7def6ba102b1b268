"""Push subscriptions: what is subscribed, what their targets do, and the operators who change them meanwhile."""
