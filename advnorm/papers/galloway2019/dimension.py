"""Vulnerability against the input dimension (section 5, appendix F)."""
