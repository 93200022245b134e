"""What commands print: tables, lines that move, lines that follow a run."""
