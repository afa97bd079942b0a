"""What happens by the clock: named alarms that ring once for each fire, and the schedules that start workflows by them."""

from gateway.schedules.alarms import Alarm, Alarms
from gateway.schedules.starting import alarm_of, key_of

__all__ = ["Alarm", "Alarms", "alarm_of", "key_of"]
