"""What the README's performance table is made with: `python -m bench`. Loopback only; every loop is bounded."""
