"""The parts that all expressions share: tokens, placeholders, paths, and checks of the values behind placeholders.

```
path = name ("." name | "[" digits "]")*
name = a letter, then letters, digits and "_"; or "#" and a placeholder
```
A compiled expression takes the item, the names behind `#name`, and the values behind `:value`. So calls whose names and
values differ share it. Syntax that the modules here do not list is refused, also where DynamoDB would take it.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html

The words that no expression may use as a name without a `#`.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_core.limits import EXPRESSION_BYTES_MAX, EXPRESSION_OPERATORS_MAX
from penstock_service.adapters.tables.values import invalid

Item = Mapping[str, Any]
Names = Mapping[str, str]
Values = Mapping[str, Any]
Path = tuple[str | int, ...]  # names as written, and positions in lists
Evaluate = Callable[[Item, Names, Values], Any]
Check = Callable[[Values], None]
PLACEHOLDER_BYTES_MAX = 255
_TOKEN = re.compile(r"\s*(<=|>=|<>|[=<>+\-(),.\[\]]|[#:][A-Za-z0-9_]+|[A-Za-z][A-Za-z0-9_]*|[0-9]+)")
_KEYWORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"}
_WORDS = """
ABORT ABSOLUTE ACTION ADD AFTER AGENT AGGREGATE ALL ALLOCATE ALTER ANALYZE AND ANY ARCHIVE ARE ARRAY AS ASC ASCII
ASENSITIVE ASSERTION ASYMMETRIC AT ATOMIC ATTACH ATTRIBUTE AUTH AUTHORIZATION AUTHORIZE AUTO AVG BACK BACKUP BASE
BATCH BEFORE BEGIN BETWEEN BIGINT BINARY BIT BLOB BLOCK BOOLEAN BOTH BREADTH BUCKET BULK BY BYTE CALL CALLED CALLING
CAPACITY CASCADE CASCADED CASE CAST CATALOG CHAR CHARACTER CHECK CLASS CLOB CLOSE CLUSTER CLUSTERED CLUSTERING
CLUSTERS COALESCE COLLATE COLLATION COLLECTION COLUMN COLUMNS COMBINE COMMENT COMMIT COMPACT COMPILE COMPRESS
CONDITION CONFLICT CONNECT CONNECTION CONSISTENCY CONSISTENT CONSTRAINT CONSTRAINTS CONSTRUCTOR CONSUMED CONTINUE
CONVERT COPY CORRESPONDING COUNT COUNTER CREATE CROSS CUBE CURRENT CURSOR CYCLE DATA DATABASE DATE DATETIME DAY
DEALLOCATE DEC DECIMAL DECLARE DEFAULT DEFERRABLE DEFERRED DEFINE DEFINED DEFINITION DELETE DELIMITED DEPTH DEREF
DESC DESCRIBE DESCRIPTOR DETACH DETERMINISTIC DIAGNOSTICS DIRECTORIES DISABLE DISCONNECT DISTINCT DISTRIBUTE DO
DOMAIN DOUBLE DROP DUMP DURATION DYNAMIC EACH ELEMENT ELSE ELSEIF EMPTY ENABLE END EQUAL EQUALS ERROR ESCAPE ESCAPED
EVAL EVALUATE EXCEEDED EXCEPT EXCEPTION EXCEPTIONS EXCLUSIVE EXEC EXECUTE EXISTS EXIT EXPLAIN EXPLODE EXPORT
EXPRESSION EXTENDED EXTERNAL EXTRACT FAIL FALSE FAMILY FETCH FIELDS FILE FILTER FILTERING FINAL FINISH FIRST FIXED
FLATTERN FLOAT FOR FORCE FOREIGN FORMAT FORWARD FOUND FREE FROM FULL FUNCTION FUNCTIONS GENERAL GENERATE GET GLOB
GLOBAL GO GOTO GRANT GREATER GROUP GROUPING HANDLER HASH HAVE HAVING HEAP HIDDEN HOLD HOUR IDENTIFIED IDENTITY IF
IGNORE IMMEDIATE IMPORT IN INCLUDING INCLUSIVE INCREMENT INCREMENTAL INDEX INDEXED INDEXES INDICATOR INFINITE
INITIALLY INLINE INNER INNTER INOUT INPUT INSENSITIVE INSERT INSTEAD INT INTEGER INTERSECT INTERVAL INTO INVALIDATE
IS ISOLATION ITEM ITEMS ITERATE JOIN KEY KEYS LAG LANGUAGE LARGE LAST LATERAL LEAD LEADING LEAVE LEFT LENGTH LESS
LEVEL LIKE LIMIT LIMITED LINES LIST LOAD LOCAL LOCALTIME LOCALTIMESTAMP LOCATION LOCATOR LOCK LOCKS LOG LOGED LONG
LOOP LOWER MAP MATCH MATERIALIZED MAX MAXLEN MEMBER MERGE METHOD METRICS MIN MINUS MINUTE MISSING MOD MODE MODIFIES
MODIFY MODULE MONTH MULTI MULTISET NAME NAMES NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE NOT NULL NULLIF NUMBER
NUMERIC OBJECT OF OFFLINE OFFSET OLD ON ONLINE ONLY OPAQUE OPEN OPERATOR OPTION OR ORDER ORDINALITY OTHER OTHERS OUT
OUTER OUTPUT OVER OVERLAPS OVERRIDE OWNER PAD PARALLEL PARAMETER PARAMETERS PARTIAL PARTITION PARTITIONED PARTITIONS
PATH PERCENT PERCENTILE PERMISSION PERMISSIONS PIPE PIPELINED PLAN POOL POSITION PRECISION PREPARE PRESERVE PRIMARY
PRIOR PRIVATE PRIVILEGES PROCEDURE PROCESSED PROJECT PROJECTION PROPERTY PROVISIONING PUBLIC PUT QUERY QUIT QUORUM
RAISE RANDOM RANGE RANK RAW READ READS REAL REBUILD RECORD RECURSIVE REDUCE REF REFERENCE REFERENCES REFERENCING
REGEXP REGION REINDEX RELATIVE RELEASE REMAINDER RENAME REPEAT REPLACE REQUEST RESET RESIGNAL RESOURCE RESPONSE
RESTORE RESTRICT RESULT RETURN RETURNING RETURNS REVERSE REVOKE RIGHT ROLE ROLES ROLLBACK ROLLUP ROUTINE ROW ROWS
RULE RULES SAMPLE SATISFIES SAVE SAVEPOINT SCAN SCHEMA SCOPE SCROLL SEARCH SECOND SECTION SEGMENT SEGMENTS SELECT
SELF SEMI SENSITIVE SEPARATE SEQUENCE SERIALIZABLE SESSION SET SETS SHARD SHARE SHARED SHORT SHOW SIGNAL SIMILAR
SIZE SKEWED SMALLINT SNAPSHOT SOME SOURCE SPACE SPACES SPARSE SPECIFIC SPECIFICTYPE SPLIT SQL SQLCODE SQLERROR
SQLEXCEPTION SQLSTATE SQLWARNING START STATE STATIC STATUS STORAGE STORE STORED STREAM STRING STRUCT STYLE SUB
SUBMULTISET SUBPARTITION SUBSTRING SUBTYPE SUM SUPER SYMMETRIC SYNONYM SYSTEM TABLE TABLESAMPLE TEMP TEMPORARY
TERMINATED TEXT THAN THEN THROUGHPUT TIME TIMESTAMP TIMEZONE TINYINT TO TOKEN TOTAL TOUCH TRAILING TRANSACTION
TRANSFORM TRANSLATE TRANSLATION TREAT TRIGGER TRIM TRUE TRUNCATE TTL TUPLE TYPE UNDER UNDO UNION UNIQUE UNIT UNKNOWN
UNLOGGED UNNEST UNPROCESSED UNSIGNED UNTIL UPDATE UPPER URL USAGE USE USER USERS USING UUID VACUUM VALUE VALUED
VALUES VARCHAR VARIABLE VARIANCE VARINT VARYING VIEW VIEWS VIRTUAL VOID WAIT WHEN WHENEVER WHERE WHILE WINDOW WITH
WITHIN WITHOUT WORK WRAPPED WRITE YEAR ZONE
"""
RESERVED_WORDS = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression: the placeholders that it uses, and checks of the values behind them."""

    names: frozenset[str]
    values: frozenset[str]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A path, a value, or `size` of a path. `path` and `value` are as written."""

    evaluate: Evaluate
    path: Path | None = None
    value: str | None = None


class Parser:
    """Takes one expression apart. `kind` is the parameter's name, such as ConditionExpression."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        if not text:
            raise self.refusal("The expression can not be empty;")
        if len(text.encode()) > EXPRESSION_BYTES_MAX:
            raise self.refusal("Expression size has exceeded the maximum allowed size;")
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.checks: list[Check] = []
        self.roots: set[str] = set()
        self.operators = 0
        self._tokens = self._split(text)
        self._at = 0

    def facts(self) -> dict[str, Any]:
        """The members of Expression. Raises ValidationException if something is left, or operators are too many."""
        if self._at < len(self._tokens):
            raise self.unexpected()
        if self.operators > EXPRESSION_OPERATORS_MAX:
            raise self.refusal(f"The expression contains too many operators; operator count: {self.operators}")
        return {"names": frozenset(self.names), "values": frozenset(self.values), "checks": tuple(self.checks)}

    def refusal(self, why: str) -> Exception:
        """The error for an expression that DynamoDB would not take."""
        return invalid(f"Invalid {self.kind}: {why}")

    def unexpected(self) -> Exception:
        """The error for the next token."""
        near = " ".join(self._tokens[max(0, self._at - 1) : self._at + 2])
        return self.refusal(f'Syntax error; token: "{self.peek() or "<EOF>"}", near: "{near}"')

    def peek(self, ahead: int = 0) -> str:
        """The next token, or one behind it. "" at the end."""
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        """Takes the next token, which must be `wanted`."""
        token = self.peek()
        if not token or (wanted is not None and token.upper() != wanted):
            raise self.unexpected()
        self._at += 1
        return token

    def took(self, *wanted: str) -> bool:
        """Takes the next token if it is one of `wanted`."""
        if self.peek().upper() not in wanted:
            return False
        self._at += 1
        return True

    def count(self) -> None:
        """Counts an operator or a function."""
        self.operators += 1

    def value(self) -> str:
        """Takes the placeholder of a value."""
        if not self.peek().startswith(":"):
            raise self.unexpected()
        name = self.take()
        self.values.add(name)
        return name

    def value_operand(self) -> Operand:
        """Takes the placeholder of a value, as an operand."""
        name = self.value()
        return Operand(lambda _item, _names, values: values[name], value=name)

    def path(self) -> Path:
        """Takes a path."""
        parts: list[str | int] = [self._name()]
        self.roots.add(str(parts[0]))
        while True:
            if self.took("."):
                parts.append(self._name())
            elif self.took("["):
                if not self.peek().isdecimal():
                    raise self.unexpected()
                parts.append(int(self.take()))
                self.take("]")
            else:
                return tuple(parts)

    def check_kind(self, function: str, operand: Operand, kinds: frozenset[str]) -> None:
        """Lets each call check that a value is of one of these kinds."""
        if operand.value is not None:
            self.checks.append(partial(self._check_kind, function, operand.value, kinds))

    def _check_kind(self, function: str, name: str, kinds: frozenset[str], values: Values) -> None:
        kind = next(iter(values[name]))
        if kind not in kinds:
            raise self.refusal(
                "Incorrect operand type for operator or function; "
                f"operator or function: {function}, operand type: {kind}"
            )

    def _name(self) -> str:
        name = self.peek()
        if name.startswith("#"):
            self.names.add(name)
        elif not name[:1].isalpha() or name.upper() in _KEYWORDS:
            raise self.unexpected()
        elif name.upper() in RESERVED_WORDS:
            raise self.refusal(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        return self.take()

    def _split(self, text: str) -> list[str]:
        tokens: list[str] = []
        text, at = text.rstrip(), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.refusal(f'Syntax error; token: "{text[at : at + 1]}", near: "{text[at : at + 10]}"')
            tokens.append(found[1])
            at = found.end()
        if any(len(each) > PLACEHOLDER_BYTES_MAX for each in tokens if each[0] in "#:"):
            raise self.refusal(f"a placeholder has {PLACEHOLDER_BYTES_MAX} bytes at most")
        return tokens


def getter(path: Path) -> Evaluate:
    """A function that finds the value at the path. None if there is none."""
    first, rest = str(path[0]), path[1:]
    if not rest:
        if first.startswith("#"):
            return lambda item, names, _: item.get(names[first])
        return lambda item, _names, _values: item.get(first)

    def get(item: Item, names: Names, _: Values) -> Any:
        found = item.get(names.get(first, first))
        for part in rest:
            if found is None:
                return None
            if isinstance(part, int):
                elements = found.get("L", ())
                found = elements[part] if part < len(elements) else None
            else:
                found = found.get("M", {}).get(names.get(part, part))
        return found

    return get
