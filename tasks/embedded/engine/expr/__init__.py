"""Argo's expressions and templates."""
