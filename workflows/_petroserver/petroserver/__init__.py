"""A small web server that tells the price of a barrel."""
