"""Alerts: what an operator should know without asking, decided from rows beside the gate, never on a call's way.

rules.py   pure: from where budgets stand, refusals and events to signs
watch.py   the job that looks, enters what is new, and tells it directly while there is no database

The bot tells what stands in the rows of `gateway.store.alerts`, and takes the acknowledgements.
"""

from gateway.alerts.watch import LOOK_EVERY_S, AlertWatch

__all__ = ["LOOK_EVERY_S", "AlertWatch"]
