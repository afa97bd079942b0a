"""Workflows in chats: started, followed, answered and cancelled. Everything goes through rows; the worker may be elsewhere."""
