"""The HTTP surface: an OpenAI-compatible endpoint, budgets and usage for admins, health, metrics and the webhook's door.

Parse, call one thing, render. `Server` runs it all on one listening socket.
"""
