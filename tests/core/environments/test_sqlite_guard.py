"""No statement writes, hangs, grows or looks beyond its tables."""

import random
import resource
import time
from contextlib import nullcontext

import pytest

from core.environments import sqlite_guard
from core.environments.sqlite import build_tables
from core.environments.sqlite_guard import Table, check_query, render_rows, run_query
from core.errors import ToolEnvironmentError

TABLES = build_tables(43058)

DOUBLING = "".join(
    f",{b} as(select s||s s from {a})" for a, b in zip("abcdef", "bcdefg", strict=True)
)

ESCAPES = [
    "attach 'x' as y",
    "pragma writable_schema = on",
    "with t as (select 1) delete from orders",
    "with t as (select 1) insert into orders select 1, 1, 1, 'x'",
    "with t as (select 1) update orders set amount = 0",
    "select * from orders; drop table orders",
    "select 1; attach 'x' as y",
    "with recursive r(x) as (select 1 union all select x + 1 from r) select count(*) from r",
    "select load_extension('x')",
    "select writefile('x', 'y')",
    "select readfile('/etc/passwd')",
    "select edit('x')",
    "select fts3_tokenizer('simple')",
    "select zeroblob(1000000000)",
    "select randomblob(1000000000)",
    "select hex(zeroblob(100000000))",
    "select printf('%.*c', 100000000, 'x')",
    "select replace('a', 'a', 'b')",
    "select group_concat(name) from customers",
    "select 'aaaaaaaaaaaaaaaaaaaa' like '%a%a%a%a%a%a%a%a%b'",
    "select 'a' glob '*'",
    "select * from sqlite_master",
    "select count(*) from sqlite_master",
    "select * from sqlite_schema",
    "select * from pragma_table_info('orders')",
    "select * from pragma_database_list",
    "select * from json_each('[1]')",
    "select * from dbstat",
    "explain select 1",
    "vacuum into 'x'",
    "with x as (select 1) replace into orders select 1, 1, 1, 'x'",
    "with recursive orders as (select 1 union all select 1 from orders) select * from orders",
    "select * from sqlite_temp_master",
    "select * from temp.sqlite_master",
    "select * from sqlite_dbpage",
    "select * from generate_series(1, 1000000000)",
    "select writable_schema",
    "select json_group_array(name) from customers",
    "select '[[[[1]]]]' ->> '$[0]'",
    "select format('%.*c', 100000000, 'x')",
    "select random()",
    "select datetime('now')",
    "select ?32766",
    "select 1;;",
    "select '\x00'",
    "create trigger t after insert on orders begin select 1; end",
    "detach main",
    "reindex",
    "analyze",
    "vacuum",
    "values (1)",
    f"select {'+'.join(['1'] * 190)}",
    f"select {','.join(['1'] * 120)}",
    "select a.id from orders a, orders b, orders c, orders d, orders e order by a.id || e.id",
    "begin",
    "savepoint x",
    "create temp table x (y)",
    "select count(*) from orders a, orders b, orders c, orders d, orders e, orders f, orders g",
    f"with a as (select '{'x' * 60}' s){DOUBLING} select s from g",
    f"select {'(' * 190}1{')' * 190}",
    f"select {'-' * 390}1",
    f"{'select *, * from (' * 5}select * from orders{')' * 5}",
    "select \x00",
    "select '\ud800'",
    "select",
    "with",
    "",
    ";",
]  # fmt: skip

PIECES = (
    "select", "with", "from", "where", "group by", "order by", "having", "limit", "union all", "as",
    "orders", "customers", "sqlite_master", "o", "c", "id", "name", "city", "amount", "status",
    "customer_id", "*", ",", "(", ")", "=", "<", "||", "+", "-", "/", "%", "1", "0", "'x'", "null",
    "count(*)", "sum(amount)", "max", "lower", "substr", "like", "join", "cross join", "on", "in",
    "exists", "case when", "then", "else", "end", "over ()", "cast(", "x'ff'", ";", "--", "/*",
    "*/", "pragma", "attach", "delete", "insert into", "values", "recursive", "1e999", "\x00", "é",
)  # fmt: skip

SHAPES = (
    "({} + {})", "({} || {})", "({} < {})", "({} % {})", "max({}, {})", "coalesce({}, {})",
    "({} in (select id from orders where id > {}))", "(case when {} then {} end)",
    "(select count(*) from orders where {} = {})",
)  # fmt: skip


@pytest.fixture
def shared(monkeypatch):
    """One database for all queries of a test, so that a trace of any of them would show."""
    connection = sqlite_guard._open(TABLES)
    monkeypatch.setattr(sqlite_guard, "_open", lambda tables: connection)
    monkeypatch.setattr(sqlite_guard, "closing", nullcontext)
    yield connection
    connection.close()


def image(connection):
    connection.set_authorizer(None)
    return connection.serialize()


def largest_memory():
    """Bytes that this process has held at most (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ends_quietly(sql):
    started = time.process_time()
    try:
        rows = run_query(TABLES, sql)
        size = len(render_rows(rows))
    except ToolEnvironmentError:
        rows, size = [], 0
    assert time.process_time() - started < 1.0
    assert len(rows) <= 21
    assert size <= 8000
    return rows


def random_value(rng, depth=2):
    """An expression; at depth 0 a column or a literal."""
    if depth == 0:
        return rng.choice(("o.amount", "o.status", "c.city", "c.id", "1", "0", "'x'", "null", "-7"))
    left, right = random_value(rng, depth - 1), random_value(rng, depth - 1)
    shape = rng.choice(SHAPES)
    return shape.format(left, right)


def random_query(rng):
    """Half the statements are soup; the others are queries in form."""
    if rng.random() < 0.5:
        start = rng.choice(("select", "with", ""))
        return " ".join([start, *rng.choices(PIECES, k=rng.randrange(1, 20))])
    joins = ", ".join(["orders o, customers c", *(f"orders o{n}" for n in range(rng.randrange(6)))])
    tail = rng.choice(("", f" where {random_value(rng)}", f" group by {random_value(rng, 1)}",
                       f" order by {random_value(rng, 1)}", " limit 3"))  # fmt: skip
    return f"select {random_value(rng)} from {joins}{tail}"


def with_noise(rng, sql):
    """Replace a few characters of some statements by any others."""
    characters = list(sql)
    for _ in range(rng.choice((0, 0, 0, 1, 5)) if characters else 0):
        noise = rng.choice((rng.randrange(32), rng.randrange(256), rng.randrange(0x11000)))
        characters[rng.randrange(len(characters))] = chr(noise)
    return "".join(characters)


@pytest.mark.parametrize("sql", ESCAPES)
def test_known_escapes_are_refused_and_leave_no_trace(sql, shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = image(shared)
    with pytest.raises(ToolEnvironmentError):
        run_query(TABLES, sql)
    assert image(shared) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select 1 as a", [{"a": 1}]),
        ("SELECT Count(*) AS n FROM Orders", [{"n": 12}]),
        ("with t as (select 2 as x) select x from t", [{"x": 2}]),
        ("select(1)", [{"(1)": 1}]),
        ("select null as a, x'00ff' as b, 9e999 as c", [{"a": None, "b": "00ff", "c": "inf"}]),
        ("select cast(x'ff' as text) as a", [{"a": "\ufffd"}]),
        ("select 'a;b' as a -- ; c", [{"a": "a;b"}]),
        ("select name from customers where city = 'Lyon'", [{"name": "Cyd1"}]),
        ("select round(avg(amount), 2) as a from orders", [{"a": 322.83}]),
        ("select id from orders where 0", []),
    ],
)
def test_reading_works(sql, rows):
    assert run_query(TABLES, sql) == rows


def test_twenty_rows_are_shown_and_the_rest_is_announced():
    rows = run_query(TABLES, "select o.id from orders o, customers c")
    assert len(rows) == 21
    assert rows[-1] == {"_note": "only the first 20 rows are shown"}
    assert len(run_query({"t": Table("x", [(n,) for n in range(20)])}, "select x from t")) == 20


def test_a_table_may_be_empty():
    assert run_query({"t": Table("x", [])}, "select count(x) as n from t") == [{"n": 0}]


def test_ten_thousand_random_statements_end_within_the_limits(shared):
    before, memory = image(shared), largest_memory()
    rng = random.Random(10_000)
    read = sum(bool(ends_quietly(with_noise(rng, random_query(rng)))) for _ in range(10_000))
    assert image(shared) == before
    assert largest_memory() - memory < 100 * 2**20
    assert 1000 <= read <= 9000


def test_the_most_memory_that_a_statement_can_ask_for_is_bounded():
    # Values of nearly 2000 bytes, in a sorter that holds all rows of a cross join at once.
    doubled = "with a as(select '{}' s),b as(select s||s s from a),c as(select s||s s from b) "
    sql = doubled.format("x" * 200) + (
        "select c.s||s||o.id||p.id||q.id k from c,orders o,orders p,orders q,orders r order by k"
    )
    memory = largest_memory()
    with pytest.raises(ToolEnvironmentError, match="interrupted"):
        run_query(TABLES, sql)
    assert largest_memory() - memory < 100 * 2**20


@pytest.mark.parametrize("sql", ["", "insert into t", "selects", f"select {'1' * 394}"])
def test_a_text_that_is_no_query_is_refused(sql):
    with pytest.raises(ToolEnvironmentError, match=r"no query|401 characters"):
        check_query(sql)


def test_a_large_result_is_refused():
    with pytest.raises(ToolEnvironmentError, match="too large"):
        render_rows([{"a": "x" * 8000}])
