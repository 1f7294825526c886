"""What operators and customers define: its fields, records, revisions and lists."""
