"""A bootstrap step by step: look, judge, carry out what does not hold, look again."""
