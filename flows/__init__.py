"""The sentences: five flows, approvals and reports."""
