"""Every text a person reads: from facts with fields to text, in the person's language and zone.

`notice(error, reader, now)` says why no answer can be given and when one can; `text(language, key, **fields)` says
everything else. The texts are in `gateway/locale/<language>/LC_MESSAGES/gateway.po`; what a language lacks is said in
English. No internal names, amounts or money to people who are not admins.
"""

from gateway.notice.alerts import acknowledged_text, alert_text
from gateway.notice.catalogue import languages, text
from gateway.notice.compose import allowance, notice
from gateway.notice.numbers import amount, money, per, percent, whole
from gateway.notice.times import until, wait, when
from gateway.notice.values import Action, Notice, Reader

__all__ = [
    "Action",
    "Notice",
    "Reader",
    "acknowledged_text",
    "alert_text",
    "allowance",
    "amount",
    "languages",
    "money",
    "notice",
    "per",
    "percent",
    "text",
    "until",
    "wait",
    "when",
    "whole",
]
