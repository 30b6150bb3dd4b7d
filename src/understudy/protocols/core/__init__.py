"""What every protocol is written in: messages, parties, alignment, and the loop of
rounds with what is saved of it.
"""

from understudy.protocols.core.base import VIEWS as VIEWS
from understudy.protocols.core.base import Ask as Ask
from understudy.protocols.core.base import Assembly as Assembly
from understudy.protocols.core.base import Done as Done
from understudy.protocols.core.base import Keep as Keep
from understudy.protocols.core.base import Message as Message
from understudy.protocols.core.base import Opening as Opening
from understudy.protocols.core.base import Paid as Paid
from understudy.protocols.core.base import Parties as Parties
from understudy.protocols.core.base import Party as Party
from understudy.protocols.core.base import Progress as Progress
from understudy.protocols.core.base import Public as Public
from understudy.protocols.core.base import Reply as Reply
from understudy.protocols.core.base import Return as Return
from understudy.protocols.core.base import Settle as Settle
from understudy.protocols.core.base import Watcher as Watcher
from understudy.protocols.core.base import public_values as public_values
from understudy.protocols.core.base import settled as settled
