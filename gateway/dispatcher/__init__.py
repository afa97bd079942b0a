"""The dispatcher: gate → call → settle → retry or fall back. The only way to a provider.

core.py     complete, stream, explain; deduplication
generation.py  what one configuration made: a request keeps to it to its end
walk.py     a request's way along its chain: next slot, retry, end
gate.py     what a slot would hold, clamping, the reservation
desk.py     what an attempt came to: closing and reply, written whatever happens to the caller
settle.py   the pure rules of settling
stream.py   one attempt as a stream
breaker.py  slots that are left alone for a while
replies.py  stored replies and whole objects from streams
"""

from gateway.dispatcher.core import Dispatcher
from gateway.dispatcher.observe import Alert, Observer, Unobserved
from gateway.dispatcher.stream import Event
from gateway.dispatcher.values import Begun, Priced, Reply, StreamBroken, Verdict

__all__ = ["Alert", "Begun", "Dispatcher", "Event", "Observer", "Priced", "Reply", "StreamBroken", "Unobserved", "Verdict"]
