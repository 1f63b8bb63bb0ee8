"""The checks: resume, twins, handover. Each returns a record and draws nothing."""
