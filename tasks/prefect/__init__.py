"""Prefect's server: deployments, flow runs, events, automations, background services."""
