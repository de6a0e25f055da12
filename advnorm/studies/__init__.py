"""Many runs compared: trained once each, on processes or a cluster."""
