"""The HTTP surface: an OpenAI-compatible endpoint, budgets and usage for admins, health, metrics and the webhook's door.

Parse, call one thing, render. `create_app` makes the application from the services it is handed; `Server` runs it.
"""
