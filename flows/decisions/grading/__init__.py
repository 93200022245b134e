"""What tests measured, judged: verdicts of nodes, what of them still holds, and who must be tested. Pure."""
