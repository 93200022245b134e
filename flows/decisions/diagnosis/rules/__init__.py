"""Clues in single lines, by the program that prints them."""
