"""A stage as it is deployed: its CloudFormation stack, and calls to AWS whose refusals name the missing right."""
