"""Many runs compared: the engine that spreads them over processes or a cluster."""
