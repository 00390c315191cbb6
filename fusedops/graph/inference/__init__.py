"""What is known of a graph before it runs: shapes, types, constant values, costs."""
