from flows.commands.run_benchmark import print_summary, table_lines

ROWS = [
    {"arm": "sft", "seed 1": "6/96 6.2 %", "verdict": "baseline"},
    {"arm": "strict-opd", "seed 1": "missing", "verdict": "better, for these seeds"},
]


def test_a_table_has_aligned_columns():
    assert list(table_lines(ROWS)) == [
        "arm         seed 1      verdict",
        "sft         6/96 6.2 %  baseline",
        "strict-opd  missing     better, for these seeds",
    ]


def test_a_summary_ends_with_where_the_report_is(capsys):
    print_summary(
        {
            **{"table": ROWS, "note": "Share solved.", "identical": [["a", "b"]], "cells": 2},
            **{"comparison": {"error_control": "At most 0.05"}, "answered_from_store": 1},
            **{"computed": 3, "wall_time_s": 1.5, "view": "runs/benchmark-b"},
        }
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [
        "Share solved.",
        "At most 0.05.",
        "equal byte for byte in all artifacts: a, b",
        "2 runs: 1 from the store, 3 steps computed, in 1.5 s",
        "rows: runs/benchmark-b/rows.csv",
        "report: runs/benchmark-b/report.html",
    ]
