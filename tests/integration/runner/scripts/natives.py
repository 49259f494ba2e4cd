"""Writes through libraries that open files past Python, and reads back."""

import os
import sqlite3

import pretend

os.makedirs("out", exist_ok=True)
for name in ("out/new.db", "kept.db"):
    with sqlite3.connect(name) as database:
        database.execute("create table if not exists t (x)")
        database.execute("insert into t values (1)")
    database.close()
database = sqlite3.connect("kept.db")
assert database.execute("select count(*) from t").fetchone() == (2,)
database.close()
memory = sqlite3.connect(":memory:")
memory.execute("create table t (x)")
memory.close()
assert not os.path.exists(":memory:")
uri = sqlite3.connect("file:of-a-uri?mode=memory", uri=True)
uri.close()
pretend.report()
