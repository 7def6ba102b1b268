"""The deployment to AWS: settings per stage, one stack that composes, and one construct per concern."""
