"""What exists in the account: stage settings, one stack that composes, and one construct per concern."""
