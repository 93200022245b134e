"""What people are shown: status, events, fleet, approvals."""
