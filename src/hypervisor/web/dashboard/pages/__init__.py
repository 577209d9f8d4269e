"""One module per page, with its tables: PAGES, ACTIONS, RAW."""
