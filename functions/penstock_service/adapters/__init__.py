"""Adapters named for their technology. `memory` is as faithful as the AWS ones: one contract suite holds all."""
