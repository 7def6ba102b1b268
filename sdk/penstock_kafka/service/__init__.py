"""The Penstock service as the rooms call it: signed requests by the SDK's asynchronous client."""
