"""What happens by the clock: named alarms that ring once for each fire."""

from gateway.schedules.alarms import Alarm, Alarms

__all__ = ["Alarm", "Alarms"]
