"""Exact derivatives: IDSVA, FDSVA, the operator behind the rules, and the rules themselves."""
