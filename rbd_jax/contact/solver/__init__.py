"""The constraint problem of one state: its rows, its forces, its solution."""
