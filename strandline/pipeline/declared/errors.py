"""What went wrong in a query, in one line, without the stack traces of Java and Python that Spark puts around it."""

from __future__ import annotations

import re

from strandline.lake.reporter import describe

#: Longer messages are cut.
MAX_ERROR = 1000
#: A message of Spark with its condition, such as ``[CAST_INVALID_INPUT] The value 'x' ...``.
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] .*")
#: Conditions that only say that something inside failed.
_AROUND = frozenset({"STREAM_FAILED", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF", "FOREACH_BATCH_USER_FUNCTION_ERROR"})
#: The last line of a Python traceback: the class of the exception, and its message.
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*: .+")


def query_error(error: BaseException) -> str:
    """The innermost message of Spark or, if there is none, the exception of a Python worker."""
    lines = [line.strip() for each in _chain(error) for line in str(each).splitlines() if line.strip()]
    found = [match for line in lines if (match := _CONDITION.search(line)) is not None]
    inner = [match[0] for match in found if match[1] not in _AROUND and "Traceback" not in match[0]]
    if inner:
        return inner[-1][:MAX_ERROR]
    raised = [line for line in lines if _RAISED.fullmatch(line) and not line.startswith("at ")]
    around = [match[0].partition("terminated with exception: ")[2] or match[0] for match in found]
    return ([*raised[-1:], *around] or [describe(error)])[0][:MAX_ERROR]


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes; Spark's exceptions keep theirs apart."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = getattr(cause, "_cause", None) or cause.__cause__
    return found
