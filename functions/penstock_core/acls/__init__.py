"""Access rules: who may do what on which resource. Pure: the service loads the rules and asks for decisions."""
