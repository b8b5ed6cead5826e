"""The language as text: tokens, the tree of a statement, and the way back to SQL.

Read `sql_tokens.py`, `lexer.py`, the nodes (`expression_nodes.py`, `query_nodes.py`, `statement_nodes.py`), then the
parsers from `parser.py` downwards. The formatters (`expression_text.py`, `query_text.py`, `statement_text.py`) mirror
them: for every tree, `parse(format(tree)) == tree`.
"""
